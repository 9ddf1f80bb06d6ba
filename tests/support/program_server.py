"""The fork server of tests.support.forked_programs: `python -m tests.support.program_server`.

It imports what our programs import, accepts test processes on the socket that is its standard input, and ends when the
last of them has closed its connection; the programs of a connection end with it. A request is one line of JSON, with
three standard streams, the files that the program inherits, and the socket that gets the exit code.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import typer.main
from botocore.loaders import JSONFileLoader
from botocore.session import get_session
from pydantic import TypeAdapter
from torch.onnx._internal.exporter._registration import ONNXRegistry

import tests.support.without_graph_plans  # noqa: F401 - it is undone by `with_graph_plans`
from moonfed.export.onnx_graph import OPSET
from moonfed.registry import Registry
from tests.support.forked_process import AGENT_MODULE, CHILDREN, MODULES, PROGRAMS, READY, become, module_of
from tests.support.shared_operators import share_operators
from tests.support.shared_tables import share_tables

REQUEST_BYTES = 1 << 20
HUGE_PAGE, MADV_COLLAPSE = 2 << 20, 25
# What the programs import when they need it.
LATER = (
    "torch",
    "moonfed.edge_client.agent.session",
    "moonfed.edge_client.agent.worker_process",
    "moonfed.edge_client.worker.trainer",
    "moonfed.edge_client.inference.plan_task",
    "moonfed.edge_client.inference.onnx_task",
    "moonfed.edge_client.profile.task",
    "moonfed.coordinator.server",
    "moonfed.coordinator.storage.db.postgres",
    "moonfed.coordinator.storage.blobs.object_store",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "psycopg",
    "s3fs",
    "moonfed.coordinator.aggregation.robust.reducers.trimmed_mean",
    "moonfed.server_rules.adaptive",
    "moonfed.transport.diagnosis",
    "cryptography.hazmat.backends.openssl.backend",
    "grpc._channel",
    "grpc.experimental",
    "moonfed.cli.serve",
    "moonfed.serving.server",
    "moonfed.export.evaluator",
    "moonfed.export.bundle_builder",
    "moonfed.experiments.fleet.run",
    "torch._dynamo",
    "torch.export._trace",
    "torch.onnx._internal.exporter._compat",
    "torch.onnx._internal.exporter._torchlib.ops",
    "onnxscript.function_libs.torch_lib.registration",
    "networkx",
    "sympy.tensor.tensor",
    "moonfed.release.create",
    "onnxscript.optimizer",
    "onnxscript.version_converter",
    "onnx.reference.ops._op_list",
    "onnxruntime.quantization",
    "sklearn.datasets",
    "matplotlib.pyplot",
    "typer._adapters",
    "typer._click.decorators",
    "pydantic.main",
    "pydantic.types",
)


class Program(NamedTuple):
    """`exit_code`: the descriptor of the socket that gets it."""

    client: socket.socket
    exit_code: int


def main() -> None:
    """Fork a program for each request, and report the exit codes, until the last connection is closed."""
    listener = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    warnings.simplefilter("ignore")
    for module in (*PROGRAMS.values(), *MODULES, AGENT_MODULE, *CHILDREN.values(), *LATER):
        importlib.import_module(module)
    share_descriptions()
    share_operators()
    ONNXRegistry.from_torchlib(opset_version=OPSET)
    share_commands()
    share_tables()
    TypeAdapter(int)  # finds pydantic's plugins, which otherwise takes each program 13 ms
    awake, waker = socket.socketpair()
    for end in (awake, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()  # what programs share is not written to by their garbage collection
    use_huge_pages()
    clients, programs = [accept(listener)], dict[int, Program]()
    while clients:
        ready, _, _ = select.select([listener, awake, *clients], [], [])
        if awake in ready:
            awake.recv(4096)
            reap(programs)
        if listener in ready:
            clients.append(accept(listener))
        for client in [client for client in clients if client in ready and not answer(client, programs)]:
            kill(client, programs)
            clients.remove(client)
            client.close()


def use_huge_pages() -> None:
    """Merge the memory into huge pages, if the kernel can: forking and ending a program then take 9 ms less of 33."""
    advise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, *_, inode = line.split(maxsplit=5)[:5]
        if "w" in rights and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            for page in range(-(-start // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
                advise(ctypes.c_void_p(page), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE)


def accept(listener: socket.socket) -> socket.socket:
    """Return the connection of the next test process, which waits for the word that its programs can be forked."""
    client, _ = listener.accept()
    with suppress(ConnectionError):  # it is gone, as its first request will tell
        client.sendall(READY)
    return client


def share_descriptions() -> None:
    """Parse botocore's service descriptions once, which otherwise takes each client of an object store 50 ms."""
    read = functools.cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda _, path: read(path)
    get_session().create_client("s3", region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret")


def share_commands() -> None:
    """Build the programs' commands once, which otherwise takes each start 40 ms."""
    shared = functools.cache(typer.main.get_command)
    typer.main.get_command = shared
    for module in PROGRAMS.values():
        shared(importlib.import_module(module).app)
    for registry in [found for found in gc.get_objects() if isinstance(found, Registry)]:
        registry._installed = None  # a program may have other packages


def answer(client: socket.socket, programs: dict[int, Program]) -> bool:
    """Fork a program for the next request; return False if there is none any more."""
    try:
        request, descriptors, _, _ = socket.recv_fds(client, REQUEST_BYTES, 8)
    except ConnectionResetError:
        return False
    if not request:
        return False
    while not request.endswith(b"\n"):
        request += client.recv(REQUEST_BYTES)
    server, program = os.getpid(), os.fork()
    if program == 0:
        os.setsid()
        with suppress(ConnectionError):
            client.sendall(f"{os.getpid()}\n".encode())
        wanted = json.loads(request)
        if module_of(wanted["command"]) in CHILDREN.values():
            wanted["command"][-1] = str(server)  # the parent that it ends with
        become(wanted, descriptors[:-1])
    *streams, exit_code = descriptors
    programs[program] = Program(client, exit_code)
    for stream in streams:
        os.close(stream)
    return True


def reap(programs: dict[int, Program]) -> None:
    """Report the exit codes of programs that have ended."""
    while programs:
        program, status = os.waitpid(-1, os.WNOHANG)
        if not program:
            return
        report = programs.pop(program).exit_code
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(report)


def kill(client: socket.socket, programs: dict[int, Program]) -> None:
    """Kill the programs of a connection that is closed."""
    for number, program in programs.items():
        if program.client is client:
            os.kill(number, signal.SIGKILL)


if __name__ == "__main__":
    main()
