"""moonfed's programs as child processes, which end with this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from moonfed.errors import MoonfedError, Unavailable

STOP_SECONDS = 15.0  # between asking a program to stop and ending it


class ChildProcesses:
    """A set of running programs; leaving the `with` block stops them all.

    Each program runs in a session of its own, so that Ctrl-C reaches us alone and we stop the rest in order.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.programs: dict[str, subprocess.Popen[str]] = {}
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> ChildProcesses:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._handlers = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not keep us from stopping the rest.
        self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.stop_all()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def stop_all(self) -> None:
        """Stop every program that is still running, the youngest first, and wait for it."""
        for program in reversed(self.programs.values()):
            _ask_to_stop(program)
        for program in self.programs.values():
            _wait_or_kill(program)

    def ended(self) -> str | None:
        """Return the name of a program that has exited with an error, if there is one."""
        return next((name for name, program in self.programs.items() if program.poll()), None)

    def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program with its standard error in LOGS/NAME.log and its standard output in a pipe."""
        with (self.logs / f"{name}.log").open("w") as log:
            program = subprocess.Popen(
                [our_program(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=os.environ | dict(env or {}),
            )
        self.programs[name] = program
        return program

    def first_line(self, name: str) -> str:
        """Return the first line that a program prints; Unavailable with the end of its log if it exits first."""
        output = self.programs[name].stdout
        line = output.readline() if output else ""
        if not line:
            raise Unavailable(
                f"{name} ended before it was ready: {self.last_log_line(name)}", field="program", value=name
            )
        return line

    def last_log_line(self, name: str) -> str:
        """Return the last line of a program's log."""
        lines = (self.logs / f"{name}.log").read_text().strip().splitlines()
        return lines[-1] if lines else "it logged nothing"


def run(*command: str) -> str:
    """Run one of moonfed's programs and return its standard output; raise its error if it fails."""
    done = subprocess.run(
        [our_program(command[0]), *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise MoonfedError(f"{' '.join(command[:3])} failed: {lines[-1] if lines else done.returncode}")
    return done.stdout


def our_program(name: str) -> str:
    """Return the path of a program that is installed with this interpreter."""
    return str(Path(sys.executable).parent / name)


def _ask_to_stop(program: subprocess.Popen[str]) -> None:
    if program.poll() is None:
        program.terminate()


def _wait_or_kill(program: subprocess.Popen[str]) -> None:
    try:
        program.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    if program.stdout:
        program.stdout.close()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
