"""Workers as processes on this machine, connected by sockets; they end with this process, however it ends.

One fork server per process imports torch once and forks the workers of all its simulations, which share that memory.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

from moonfed import errors
from moonfed.sandbox.messages import decode, encode

_log = logging.getLogger(__name__)
STDERR = 2


class ForkServer:
    """A handle on the process of `fleet.fork_server`, which starts with the first worker and again if it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._codes: dict[int, int] = {}  # of workers that have ended

    def fork(self, output: Path, accelerator: str) -> tuple[int, socket.socket]:
        """Start a worker; return its process id and the socket to it."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                request = {"output": str(output), "accelerator": accelerator}
                return _ask(self._running(), request, [theirs.fileno(), STDERR]), ours
        except BaseException:
            ours.close()
            raise

    def wait(self, worker: int) -> int:
        """Wait until a worker has ended; return its exit code, which is negative if a signal ended it."""
        with self._lock:
            if worker not in self._codes:
                self._codes[worker] = _ask(self._running(), {"wait": worker})
            return self._codes[worker]

    def close(self) -> None:
        """End the process and its workers; `fork` starts another one."""
        with self._lock:
            if self._process and self._control:
                self._control.close()
                self._process.wait()
            self._process = self._control = None
            self._codes.clear()

    def _running(self) -> socket.socket:
        if self._process is None or self._control is None or self._process.poll() is not None:
            if self._control:
                self._control.close()
            self._codes.clear()
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    (sys.executable, "-m", "moonfed.experiments.fleet.fork_server"),
                    stdin=theirs.fileno(),
                    start_new_session=True,  # Ctrl-C in the terminal is for us alone
                    env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
                )
        return self._control


def _ask(control: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> int:
    try:
        socket.send_fds(control, [json.dumps(request).encode()], descriptors)
        with control.makefile("rb", buffering=0) as answers:
            answer = answers.readline()
    except OSError:
        answer = b""
    if not answer:
        raise errors.TrainingFailed("the process that starts the workers has ended unexpectedly")
    return int(answer)


@cache
def _fork_server() -> ForkServer:
    server = ForkServer()
    atexit.register(_close_at_exit, server)
    return server


def _close_at_exit(server: ForkServer) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave a traceback
    server.close()


class ProcessWorker:
    """A handle on one worker process."""

    def __init__(
        self, server: ForkServer, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._pid = pid
        self._reader = reader
        self._writer = writer
        self._code: int | None = None

    async def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        """Send a command and wait for its answer; TrainingFailed if the process exits instead."""
        with suppress(ConnectionError):  # it has ended; the answer is missing, too
            self._writer.write(encode(kind, **fields))
            await self._writer.drain()
        while line := await self._answer():
            answer, found = decode(line)
            if answer == "done":
                return found
            if answer == "failed":
                raise errors.error_from_process(found["error"], found["reason"])
            _log.log(int(found["level"]), "%s", found["text"])
        raise errors.TrainingFailed(f"a worker process {_ending(await self._wait())}")

    async def end(self) -> None:
        """Kill the process; its files are always consistent."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)  # nobody has waited for it, so the id is still its own
        self._writer.close()
        with suppress(errors.TrainingFailed):  # the fork server has died, and its workers with it
            await self._wait()

    async def _answer(self) -> bytes:
        try:
            return await self._reader.readline()
        except ConnectionError:
            return b""

    async def _wait(self) -> int:
        if self._code is None:
            self._code = await asyncio.to_thread(self._server.wait, self._pid)
        return self._code


async def open_processes(stack: AsyncExitStack, number: int, output: Path, accelerator: str) -> Sequence[ProcessWorker]:
    """Start that many workers; the stack stops them."""
    server = _fork_server()
    workers = []
    for _ in range(number):
        pid, connection = await asyncio.to_thread(server.fork, output, accelerator)
        worker = ProcessWorker(server, pid, *await asyncio.open_connection(sock=connection))
        stack.push_async_callback(worker.end)
        workers.append(worker)
    return workers


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited unexpectedly with code {code}"
    advice = "; this machine may be out of memory; try fewer --workers" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{advice}"
