"""A forked process that becomes one of our programs, and the processes that such a program starts itself."""

from __future__ import annotations

import atexit
import fcntl
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from moonfed.edge_client.agent.worker_process import START_READER
from moonfed.edge_client.cli import AGENT
from moonfed.sandbox.sandboxed_process import START

PROGRAMS = {
    "moonfed-client": "moonfed.edge_client.cli",
    "moonfed-experiments": "moonfed.experiments.cli",
    "moonfed-coordinator": "moonfed.coordinator.cli.program",
    "moonfed-export": "moonfed.cli.program",
}
PATCHES = "PATCHES_OF_TESTS"  # names modules that change a program before it runs
PATIENCE_FILE = "PATIENCE_OF_TESTS"  # the environment variable with the file for tests.support.impatient
READY = b"ready\n"  # says the fork server when it has imported everything
MODULES = (
    "tests.faults.program",
    "tests.replicas.program",
    "tests.support.limited_server",
    "tests.support.short_demo",
    "moonfed.experiments.fleet.fork_server",
    "benchmarks.load.baseline_coordinator",
    "benchmarks.load.inference_clients",
    "benchmarks.load.no_op_server",
    "benchmarks.load.onnx_runtime",
    "benchmarks.load.synthetic_devices",
)
MAINS = {f"from {module} import main; main()": module for module in PROGRAMS.values()}
AGENT_MODULE = "moonfed.edge_client.agent.main"
CHILDREN = {START_READER: "moonfed.edge_client.worker.reader", START: "moonfed.sandbox.sandboxed"}
SCRIPTS = {**MAINS, **CHILDREN, AGENT: AGENT_MODULE}
BIN = Path(sys.executable).parent


class Request(TypedDict):
    """A program to become; `files`: the numbers of the descriptors that it inherits besides its standard streams."""

    command: list[str]
    cwd: str
    env: dict[str, str]
    files: list[int]


class AnyPopen(subprocess.Popen[Any]):
    """The real `Popen`, whatever `subprocess.Popen` is replaced with."""


def module_of(command: object) -> str:
    """Return the module whose `main` a command would run, if it is one of ours; else an empty string."""
    if not isinstance(command, (list, tuple)) or not command:
        return ""
    program, *words = map(os.fspath, command)
    words = [word for word in words if word != "-I"]
    if program == sys.executable and len(words) >= 2:
        found = {"-m": {module: module for module in MODULES}, "-c": SCRIPTS}.get(words[0], {})
        return found.get(words[1], "")
    path = Path(program)
    return PROGRAMS.get(path.name, "") if path.parent == BIN else ""


def become(request: Request, streams: Sequence[int]) -> NoReturn:
    """Run a program in this process, which has just been forked, and exit as it would."""
    code = 1
    try:
        _reset(streams, request["files"])
        os.chdir(request["cwd"])
        code = _run(request["command"], request["env"])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _reset(streams: Sequence[int], files: Sequence[int]) -> None:
    """Give the process only these descriptors: three standard streams, then `files` by their numbers."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    above = max([*streams, *files]) + 1
    copies = [fcntl.fcntl(stream, fcntl.F_DUPFD, above) for stream in streams]  # they may have each other's numbers
    wanted = [0, 1, 2, *files]
    for file, copy in zip(wanted, copies, strict=True):
        os.dup2(copy, file)
    for file in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - a Path for each costs more than closing it
        if file not in wanted:
            with suppress(OSError):  # that of the listing
                os.close(file)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    atexit._clear()


def _run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a program's `main` as the interpreter would; return the exit code."""
    module = module_of(command)
    interpreted = command[0] == sys.executable
    isolated = "-I" in command[:2]
    sys.argv = [command[0], *(command[3 + isolated :] if interpreted else command[1:])]
    added = [os.getcwd()] if interpreted else []  # noqa: PTH109 - as the interpreter does
    added += [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*added, *(path for path in sys.path if path not in added)]
    if module == CHILDREN[START]:
        sys.path[:] = json.loads(sys.argv.pop(1))
    os.environ.clear()
    os.environ.update(env)
    os.execve = _exec  # type: ignore[assignment]
    subprocess.Popen = ChildPopen  # type: ignore[misc]
    try:
        for patch in filter(None, env.get(PATCHES, "").split(",")):
            importlib.import_module(patch)  # also holds for the children of a program, which are forked from it
        importlib.import_module(module).main()
        code = 0
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = 120
    return code


def _exec(path: str, command: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace the running program with another one of ours."""
    assert module_of(command), command
    request = Request(command=list(command), cwd=os.getcwd(), env=dict(env), files=[])  # noqa: PTH109
    become(request, (0, 1, 2))


class ChildPopen(AnyPopen):
    """A process that a forked program starts: a fork as well, if it is to become one of ours."""

    def _execute_child(self, args: Any, *details: Any) -> None:
        if not module_of(args) or details[1] is not None:  # with something to do before it
            super()._execute_child(args, *details)  # type: ignore[misc]
            return
        (_, _, _, files, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite) = details[:15]
        streams = [*streams_of(p2cread, c2pwrite, errwrite), *files]
        request = request_of(args, cwd, env, files)
        ready, begun = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if details[20]:
                os.setsid()
            os.write(begun, b"\0")
            become(request, streams)
        os.read(ready, 1)  # as `Popen` waits for a program to begin: its session can now be killed
        os.close(ready)
        os.close(begun)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
        )


def streams_of(*given: int) -> list[int]:
    """Return standard streams: those given, and our own in place of -1."""
    return [stream if stream >= 0 else usual for usual, stream in enumerate(given)]


def request_of(
    args: Sequence[Any],
    cwd: Any,
    env: Mapping[str, str] | None,
    files: Sequence[int],
) -> Request:
    """Return the request for a process as `subprocess` describes it."""
    return Request(
        command=[os.fspath(word) for word in args],
        cwd=os.fspath(cwd or Path.cwd()),
        env=dict(os.environ if env is None else env),
        files=list(files),
    )
