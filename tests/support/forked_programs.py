"""Programs of ours as processes that are forked from one which has imported them, so that a start imports nothing.

`ForkedPopen` is a `subprocess.Popen` that recognises our programs and modules, and starts anything else as usual. A
forked program has its own arguments, environment, working directory, standard streams, signals and exit code, and may
be killed. It differs from one that an operator starts in its memory, which it shares with the fork server, and in
settings that libraries read as they are imported. Tests about those, and about the imports, start processes as usual.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked_process import READY, AnyPopen, Request, module_of, request_of, streams_of
from tests.support.session_cache import CACHE

ROOT = Path(__file__).parents[2]
REAL_POPEN = subprocess.Popen
# Read as grpc is imported. Our programs are to report errors themselves; and a training worker is forked from an agent
# that uses grpc, whose own handlers of forks would abort such a process: it never calls grpc.
GRPC_SETTINGS = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
FORK_SETTINGS = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # a fork copies fewer page tables, and takes 5 ms less


# Kept for all tests of the process, of which those without forked programs look for it.
FORK_SERVER = "moonfed.experiments.fleet.fork_server"


class ProgramServer:
    """A connection to the process of `tests.support.program_server`, which the first test process to need it starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: AnyPopen | None = None
        with (Path(os.environ[CACHE]) / "programs.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            while not self._connect():  # it was just ending
                assert self._process is None, "the server ended before it was ready"

    def _connect(self) -> bool:
        address = f"\0{Path(os.environ[CACHE]).name}"  # the whole path may be too long
        self._control = socket.socket(socket.AF_UNIX)
        try:
            self._control.connect(address)
        except ConnectionRefusedError:
            self._process = start(address)
            self._control.connect(address)
        self._answers = self._control.makefile("rb", buffering=0)
        return self._answers.readline() == READY

    def fork(self, request: Request, streams: Sequence[int]) -> tuple[int, socket.socket]:
        """Start a program with these standard streams; return its process id and the socket that gets its exit code."""
        code, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode() + b"\n"], [*streams, theirs.fileno()])
            return int(self._answers.readline()), code

    def close(self) -> None:
        """End all programs of this connection; the server ends with its last connection."""
        self._answers.close()
        self._control.close()
        if self._process:
            self._process.wait()


def start(address: str) -> AnyPopen:
    """Start the server at an abstract address, where a connection waits until it is ready."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        return AnyPopen(
            [sys.executable, "-m", "tests.support.program_server"],
            stdin=listener.fileno(),
            start_new_session=True,
            cwd=ROOT,
            env=os.environ | GRPC_SETTINGS | FORK_SETTINGS | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )


@cache
def _server() -> ProgramServer:
    server = ProgramServer()
    atexit.register(server.close)
    return server


class ForkedPopen(AnyPopen):
    """A process whose parent is the fork server, if it is one of our programs."""

    _exit_code: socket.socket | None = None

    def _execute_child(self, args: Any, *details: Any) -> None:
        if module_of(args) in ("", FORK_SERVER) or details[1] is not None:  # with something to do before it
            super()._execute_child(args, *details)  # type: ignore[misc]
            return
        (_, _, _, files, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite) = details[:15]
        request, streams = request_of(args, cwd, env, files), [*streams_of(p2cread, c2pwrite, errwrite), *files]
        self.pid, self._exit_code = _server().fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
        )

    def _internal_poll(self, *details: Any, **others: Any) -> int | None:
        if self._exit_code is None:
            return super()._internal_poll(*details, **others)  # type: ignore[misc, no-any-return]
        return self._await_exit(0)

    def _wait(self, timeout: float | None) -> int:
        if self._exit_code is None:
            return super()._wait(timeout)  # type: ignore[misc, no-any-return]
        code = self._await_exit(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _await_exit(self, timeout: float | None) -> int | None:
        assert self._exit_code
        if self.returncode is None and select.select([self._exit_code], [], [], timeout)[0]:
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None:
                    self.returncode = int(self._exit_code.recv(16) or -signal.SIGKILL)
                    self._exit_code.close()
        return self.returncode


def fork_programs() -> None:
    """Fork whatever this process starts of our programs through `subprocess`."""
    subprocess.Popen = ForkedPopen  # type: ignore[misc]


@pytest.fixture
def forked_programs() -> None:
    """Await the server before a test that starts programs, and that might measure how long they take."""
    _server()  # which imports for some seconds


@pytest.fixture
def fresh_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start programs as an operator does."""
    monkeypatch.setattr(subprocess, "Popen", REAL_POPEN)
