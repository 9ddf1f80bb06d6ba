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
TICK_SECONDS = 0.5  # between two checks that training is still wanted

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
        """Raise what the worker finds wrong with this device's settings, before there is work; then end it."""
        self._answer(encode("check"), lambda _: True)
        self.end()

    def train(self, job: Job, wanted: Callable[[Heartbeat | None], bool]) -> bool:
        """Train one round; return False if `wanted` said no on the way.

        `wanted` is called for each heartbeat, and with None now and then. Raises TrainingFailed if the child
        crashed, hung or could not train, or the child's own MoonfedError; the next job then gets a new child.
        """
        return self._answer(encode("train", **job.to_document()), wanted) == "trained"

    def end(self) -> None:
        """Kill the worker and everything it started; its files are consistent at every moment."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):  # macOS denies signals to a group of zombies
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
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
        # A session of its own: a Ctrl-C in the terminal is for the parent, which then ends the child.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._messages = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(self._process, self._messages), name="child", daemon=True).start()
        return self._process

    def _send(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin  # noqa: S101 - it was opened as a pipe
        with suppress(BrokenPipeError):  # it has exited; waiting for its answer reports how
            process.stdin.write(line)
            process.stdin.flush()

    def _answer(self, command: bytes, wanted: Callable[[Heartbeat | None], bool]) -> str:
        """Send a command and return the final message; kill the worker on any exception.

        A child whose answer nobody waited for would give it to the next command. One that failed may have left torch
        or the accelerator in a bad state.
        """
        try:
            return self._await_answer(command, wanted)
        except BaseException:
            self.end()
            raise

    def _await_answer(self, command: bytes, wanted: Callable[[Heartbeat | None], bool]) -> str:
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
                raise errors.told_by_a_process(fields["error"], fields["reason"])
            if kind == "note":
                log.log(int(fields["level"]), "%s", fields["text"])
            if time.monotonic() > deadline:
                if stopping:
                    self.end()
                    return "stopped"
                raise errors.TrainingFailed(
                    f"the training process sent no heartbeat for {self._silence_seconds:g} seconds and was ended"
                )
            if not stopping and not wanted(Heartbeat(**fields) if kind == "progress" else None):
                stopping, deadline = True, time.monotonic() + STOP_SECONDS
                self._send(process, encode("stop"))

    def _next_message(self, process: subprocess.Popen[bytes]) -> tuple[str, dict[str, Any]] | None:
        """Return the next message, None on timeout; raise TrainingFailed if the worker has exited."""
        try:
            line = self._messages.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return None
        if line is None:
            raise errors.TrainingFailed(f"the training process {_ending(process.wait())}")
        return decode(line)


def _listen(process: subprocess.Popen[bytes], messages: queue.SimpleQueue[bytes | None]) -> None:
    assert process.stdout  # noqa: S101 - it was opened as a pipe
    with process.stdout:
        for line in process.stdout:
            messages.put(line)
    messages.put(None)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    advice = "; the device may be out of memory" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{advice}"
