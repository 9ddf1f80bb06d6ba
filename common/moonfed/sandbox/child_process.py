"""A child process of the agent: start, commands, heartbeats, deadlines and termination.

A plan may have taken over a child in the sandbox, so all of the child's output is bounded and checked.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from moonfed import errors
from moonfed.printable import one_line
from moonfed.sandbox.messages import decode, encode

SILENCE_SECONDS = 30 * 60.0  # without a heartbeat; one batch of a large model on a small board takes minutes at most
STOP_SECONDS = 10.0  # for a child to stop before it is killed
TICK_SECONDS = 0.5  # between two checks that the work is still needed
WATCH_SECONDS = 1.0  # between two checks of the child itself, which also run while it has no command
LINE_BYTES = 1 << 16  # of one message
TEXT_LENGTH = 1000  # characters of a reason or a logged line
OUTPUT_LINES = 100  # of a sandboxed child's standard error, and of its log, that are logged between two commands
PENDING = 100  # messages; a child that sends more waits

Fields = dict[str, Any]
OnProgress = Callable[[Fields | None], bool]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A child's command line, environment and descriptors; `name` is the subject of messages about it."""

    name: str
    command: Sequence[str]
    cwd: Path | None = None
    env: Mapping[str, str] | None = None  # None: ours
    files: tuple[int, ...] = ()  # descriptors that it inherits
    log_output: bool = False  # whether its standard error is logged line by line, instead of being ours
    check: Callable[[], None] | None = None  # called every WATCH_SECONDS; raises TrainingFailed to have it killed


class ChildProcess:
    """One child, started with its first command. All calls but `end` must come from one long-lived thread."""

    def __init__(self, program: Program, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._program, self._silence_seconds = program, silence_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: queue.Queue[bytes | None] = queue.Queue(PENDING)
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._output = _LoggedOutput(program.name)
        self._log_messages = 0  # since the last command
        self._ended = threading.Event()  # this process, or what is left of it
        self._watch: _Watch | None = None

    @property
    def running(self) -> bool:
        """True if there is a process to end."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """The process id; None if there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process now, unless it is running."""
        if self._process is None:
            program = self._program
            # A session of its own: Ctrl-C in the terminal reaches only the parent, which then ends the child.
            self._process = subprocess.Popen(
                [*program.command, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if program.log_output else None,
                cwd=program.cwd,
                env=program.env,
                pass_fds=program.files,
                start_new_session=True,
            )
            self._messages, self._commands = queue.Queue(PENDING), queue.SimpleQueue()
            self._ended = threading.Event()
            _start_thread(_write_commands, self._process.stdin, self._commands)
            _start_thread(_read_messages, self._process.stdout, self._messages, self._ended)
            if self._process.stderr:
                _start_thread(self._output.read, self._process.stderr)
            if program.check:
                self._watch = _Watch(self._process, program.check, self._ended)

    def end(self) -> None:
        """Kill the child and everything it started; its files are always consistent."""
        process, self._process = self._process, None
        if process is None:
            return
        self._ended.set()
        with suppress(ProcessLookupError, PermissionError):  # macOS denies signals to a group of zombies
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
        process.wait()
        _drain(self._messages)
        self._commands.put(None)

    def answer(
        self, command: bytes, expected: str, on_progress: OnProgress = lambda _: True, seconds: float | None = None
    ) -> Fields | None:
        """Send a command and return the fields of the `expected` answer; None if `on_progress` stopped the work.

        `on_progress` is called with the fields of each heartbeat, and with None in between. `seconds`: the time after
        which the child is killed. Raises TrainingFailed if it crashed, hung, took too long or could not do the work, or
        the child's own MoonfedError. The child is killed on any exception: an unread answer would be mistaken for the
        answer to the next command, and a failed child may have left torch or the accelerator in a bad state.
        """
        try:
            return self._await_answer(command, expected, on_progress, seconds)
        except BaseException:
            self.end()
            raise

    def _await_answer(
        self, command: bytes, expected: str, on_progress: OnProgress, seconds: float | None
    ) -> Fields | None:
        self.start()
        process = self._process
        assert process  # noqa: S101 - just started
        self._output.lines_left, self._log_messages = OUTPUT_LINES, 0
        self._commands.put(command)
        deadline = _Deadline(self._program.name, self._silence_seconds, seconds)
        while True:
            kind, fields = self._next_message(process) or ("silence", {})
            if kind in (expected, "stopped"):
                return fields if kind == expected else None
            self._handle(kind, fields)
            if kind != "silence":
                deadline.extend()
            if deadline.passed():
                self.end()
                return None
            if not deadline.stopping and not on_progress(fields if kind == "progress" else None):
                deadline.stop()
                self._commands.put(encode("stop"))

    def _handle(self, kind: str, fields: Fields) -> None:
        if kind == "failed":
            raise errors.error_from_process(str(fields.get("error")), _one_line(fields.get("reason")))
        if kind == "log" and (self._log_messages < OUTPUT_LINES or not self._program.log_output):
            self._log_messages += 1
            level = fields.get("level")
            _log.log(level if level in (logging.WARNING, logging.ERROR) else logging.INFO, "%s",
                    _one_line(fields.get("text")))  # fmt: skip

    def _next_message(self, process: subprocess.Popen[bytes]) -> tuple[str, Fields] | None:
        """Return the next message, None on timeout; raise TrainingFailed if the child has exited."""
        try:
            line = self._messages.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return None
        if line is None:
            exited = f"{self._program.name} {_describe_exit(process.wait())}"
            raise errors.TrainingFailed((self._watch and self._watch.violation) or exited)
        try:
            return decode(line)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise errors.TrainingFailed(f"{self._program.name} sent an invalid message") from error


class _Deadline:
    """The time at which a child is killed: after silence, at its time limit, or soon after it was asked to stop."""

    def __init__(self, name: str, silence_seconds: float, seconds: float | None) -> None:
        self._name = name
        self._silence_seconds = silence_seconds
        self._seconds = seconds
        now = time.monotonic()
        self._silent, self._end = now + silence_seconds, None if seconds is None else now + seconds
        self._stopped: float | None = None

    @property
    def stopping(self) -> bool:
        """True once the child was asked to stop."""
        return self._stopped is not None

    def stop(self) -> None:
        """Note that the child was asked to stop."""
        self._stopped = time.monotonic() + STOP_SECONDS

    def extend(self) -> None:
        """Note that the child sent something."""
        self._silent = time.monotonic() + self._silence_seconds

    def passed(self) -> bool:
        """Return True if a child ignored a request to stop; raise TrainingFailed after silence or at the time limit."""
        now = time.monotonic()
        if self._stopped is not None:
            return now > self._stopped
        if self._end is not None and now > self._end:
            raise errors.TrainingFailed(f"{self._name} did not end within {self._seconds:.0f} seconds and was killed")
        if now > self._silent:
            raise errors.TrainingFailed(
                f"{self._name} sent no heartbeat for {self._silence_seconds:g} seconds and was killed"
            )
        return False


class _Watch:
    """A thread that runs a check periodically, even between commands, and kills the child if it fails."""

    def __init__(self, process: subprocess.Popen[bytes], check: Callable[[], None], ended: threading.Event) -> None:
        self.violation = ""
        _start_thread(self._run, process, check, ended)

    def _run(self, process: subprocess.Popen[bytes], check: Callable[[], None], ended: threading.Event) -> None:
        try:
            while not ended.wait(WATCH_SECONDS):
                check()
        except errors.TrainingFailed as error:
            self.violation = str(error)
            process.kill()


class _LoggedOutput:
    """Logs a child's standard error, bounded in length and made printable."""

    def __init__(self, name: str) -> None:
        self._name, self.lines_left = name, OUTPUT_LINES

    def read(self, stream: IO[bytes]) -> None:
        """Log lines until the stream ends."""
        with stream:
            while line := stream.readline(TEXT_LENGTH):
                text = _one_line(line.decode(errors="replace"))
                if text and self.lines_left > 0:
                    self.lines_left -= 1
                    _log.warning("%s: %s", self._name, text)


def _start_thread(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, name="child", daemon=True).start()


def _write_commands(stream: IO[bytes], commands: queue.SimpleQueue[bytes | None]) -> None:
    """Write commands until None; a child that reads none of them blocks only this thread, until it is killed."""
    with suppress(OSError), stream:  # BrokenPipeError: it has exited; waiting for its answer reports how
        while (line := commands.get()) is not None:
            stream.write(line)
            stream.flush()


def _read_messages(stream: IO[bytes], messages: queue.Queue[bytes | None], ended: threading.Event) -> None:
    """Pass messages on; once the child has ended, discard those that are still in the pipe."""
    with stream:
        while line := stream.readline(LINE_BYTES):
            if not ended.is_set():
                messages.put(line)
    messages.put(None)


def _drain(messages: queue.Queue[bytes | None]) -> None:
    """Let the thread that reads messages end if the queue is full."""
    with suppress(queue.Empty):
        while True:
            messages.get_nowait()


def _one_line(text: object) -> str:
    """Return a child's text as one printable line."""
    return one_line(str(text)[: 4 * TEXT_LENGTH], TEXT_LENGTH)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited unexpectedly with code {code}"
    advice = "; the device may be out of memory" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{advice}"
