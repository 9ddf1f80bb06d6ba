"""The training worker's process: start, commands, heartbeats, stop, kill."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from moonfed import errors
from moonfed.edge_client.worker.messages import Job, WorkerSettings, decode, encode

SILENCE_SECONDS = 30 * 60.0  # without a heartbeat; one batch of a large model on a small board takes minutes at most
STOP_SECONDS = 10.0  # for a worker to stop before it is killed
TICK_SECONDS = 0.5  # between two checks that training is still needed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker's progress."""

    fraction: float
    epoch: int
    loss: float | None  # the newest whole epoch's


class WorkerProcess:
    """One training process, started on demand. All calls but `end` must come from one long-lived thread."""

    def __init__(self, settings: WorkerSettings, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._settings, self._silence_seconds = settings, silence_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    @property
    def running(self) -> bool:
        """True if there is a process to end."""
        return self._process is not None

    def check(self) -> None:
        """Start the worker, raise any problem it finds with this device's settings, and end it."""
        self._answer(encode("check"), lambda _: True)
        self.end()

    def train(self, job: Job, should_continue: Callable[[Heartbeat | None], bool]) -> bool:
        """Train one round; return False if `should_continue` stopped it.

        `should_continue` is called with each heartbeat, and with None in between. Raises TrainingFailed if the worker
        crashed, hung or could not train, or the worker's own MoonfedError; the next job then gets a new worker.
        """
        return self._answer(encode("train", **job.to_document()), should_continue) == "trained"

    def end(self) -> None:
        """Kill the worker and everything it started; its files are always consistent."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):  # macOS denies signals to a group of zombies
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
        process.wait()
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "moonfed.edge_client.worker.main",
            json.dumps(asdict(self._settings)),
            str(os.getpid()),
        ]
        # Its own session: a Ctrl-C in the terminal is for the parent, which then ends the worker.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._messages = queue.SimpleQueue()
        threading.Thread(
            target=_read_messages, args=(self._process, self._messages), name="worker", daemon=True
        ).start()
        return self._process

    def _send(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin  # noqa: S101 - it was opened as a pipe
        with suppress(BrokenPipeError):  # it has exited; waiting for its answer reports how
            process.stdin.write(line)
            process.stdin.flush()

    def _answer(self, command: bytes, should_continue: Callable[[Heartbeat | None], bool]) -> str:
        """Send a command and return the final message; kill the worker on any exception.

        An unread answer would be taken for that of the next command, and a failed worker may have left torch or the
        accelerator in a bad state.
        """
        try:
            return self._await_answer(command, should_continue)
        except BaseException:
            self.end()
            raise

    def _await_answer(self, command: bytes, should_continue: Callable[[Heartbeat | None], bool]) -> str:
        process = self._process or self._start()
        self._send(process, command)
        deadline = time.monotonic() + self._silence_seconds
        stopping = False
        while True:
            message = self._next_message(process)
            if message is not None and not stopping:
                deadline = time.monotonic() + self._silence_seconds
            kind, fields = message or ("silence", {})
            if kind in ("ready", "trained", "stopped"):
                return kind
            if kind == "failed":
                raise errors.error_from_process(fields["error"], fields["reason"])
            if kind == "log":
                log.log(int(fields["level"]), "%s", fields["text"])
            if time.monotonic() > deadline:
                if stopping:
                    self.end()
                    return "stopped"
                raise errors.TrainingFailed(
                    f"the training process sent no heartbeat for {self._silence_seconds:g} seconds and was killed"
                )
            if not stopping and not should_continue(Heartbeat(**fields) if kind == "progress" else None):
                stopping, deadline = True, time.monotonic() + STOP_SECONDS
                self._send(process, encode("stop"))

    def _next_message(self, process: subprocess.Popen[bytes]) -> tuple[str, dict[str, Any]] | None:
        """Return the next message, None on timeout; raise TrainingFailed if the worker has exited."""
        try:
            line = self._messages.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return None
        if line is None:
            raise errors.TrainingFailed(f"the training process {_describe_exit(process.wait())}")
        return decode(line)


def _read_messages(process: subprocess.Popen[bytes], messages: queue.SimpleQueue[bytes | None]) -> None:
    assert process.stdout  # noqa: S101 - it was opened as a pipe
    with process.stdout:
        for line in process.stdout:
            messages.put(line)
    messages.put(None)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited unexpectedly with code {code}"
    advice = "; the device may be out of memory" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{advice}"
