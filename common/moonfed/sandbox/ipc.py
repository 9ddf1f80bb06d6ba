"""The child's side of the pipes to its parent; `worker.messages` defines the messages."""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from moonfed.errors import MoonfedError
from moonfed.sandbox.messages import decode, encode

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
TEXT_LENGTH = 2000  # characters of a message that the parent passes on
REASON_LENGTH = 300  # characters; the log on this device has the whole traceback


class ParentPipe:
    """The pipes to the parent; plans and user code get other standard streams."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        self._in = os.fdopen(os.dup(0), "rb")
        os.dup2(2, 1)  # prints go to the log
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self._lock = threading.Lock()
        self._commands: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self.stop_requested = threading.Event()
        threading.Thread(target=self._listen, name="parent", daemon=True).start()

    def send(self, kind: str, **fields: object) -> None:
        """Send one message."""
        with self._lock:
            self._out.write(encode(kind, **fields))

    def next_command(self) -> tuple[str, dict[str, Any]]:
        """Wait for a command other than `stop`; return it with its fields."""
        return self._commands.get()

    def _listen(self) -> None:
        for line in self._in:
            kind, fields = decode(line)
            if kind == "stop":
                self.stop_requested.set()
            else:
                self.stop_requested.clear()  # it was for the previous job
                self._commands.put((kind, fields))
        os._exit(0)  # the parent is gone


class Stopped(Exception):
    """Raised by a heartbeat to end the work early; nothing of the round is kept."""


def serve(parent: ParentPipe, execute: Callable[[str, dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """Execute the parent's commands, one at a time; the answer is the result of `execute`, or its error."""
    while True:
        kind, fields = parent.next_command()
        try:
            parent.send(**execute(kind, fields))
        except Stopped:
            parent.send("stopped")
        except MoonfedError as error:
            parent.send("failed", error=type(error).__name__, reason=str(error)[:TEXT_LENGTH])
        except Exception as error:  # in the plan or in user code; it must be reported, not look like a hang
            traceback.print_exc()
            parent.send("failed", error="TrainingFailed", reason=_summary(error))


def _summary(error: Exception) -> str:
    lines = str(error).strip().splitlines()  # TorchScript puts its own traceback before the message
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"[:REASON_LENGTH]


class LogForwarder(logging.Handler):
    """A log handler that forwards records to the parent."""

    def __init__(self, parent: ParentPipe) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record to the parent."""
        self._parent.send("log", level=record.levelno, text=self.format(record)[:TEXT_LENGTH])


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the parent dies; code that never yields would not notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(0)
