"""A fork server: imports torch once, and forks a worker of the virtual fleet for each request.

`python -m moonfed.experiments.fleet.fork_server` answers requests on the socket that is its standard input. A request
is one JSON object: `output` and `accelerator` fork a worker, with its socket and its standard error attached, and
`wait` names a worker whose exit code is wanted. The server ends when the other end of the socket closes, and its
workers end with it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.experiments.fleet.worker import run_worker

REQUEST_BYTES = 1 << 16


def main() -> None:
    """Answer requests, one at a time, until the socket closes."""
    control = socket.socket(fileno=os.dup(0))
    warnings.simplefilter("ignore")
    gc.freeze()  # what workers share is not written to by their garbage collection
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
        if not request:
            return
        control.sendall(json.dumps(_answer(json.loads(request), descriptors)).encode() + b"\n")


def _answer(request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Fork a worker and return its process id, or wait for one and return its exit code."""
    if "wait" in request:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        except ChildProcessError:  # an earlier server's, which the kernel has killed with that server
            return -signal.SIGKILL
    server = os.getpid()
    worker = os.fork()
    if worker == 0:
        _become_worker(request, descriptors, server)
    for descriptor in descriptors:
        os.close(descriptor)
    return worker


def _become_worker(request: Mapping[str, Any], descriptors: Sequence[int], server: int) -> None:
    """Run a worker on the given descriptors; does not return."""
    code = 1
    try:
        channel, errors = descriptors
        for descriptor, standard in ((channel, 0), (channel, 1), (errors, 2)):
            os.dup2(descriptor, standard)
        os.closerange(3, max(descriptors) + 1)  # the server's socket, too
        run_worker(Path(request["output"]), request["accelerator"], parent=server)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
