"""The worker's end of the pipes to its parent; `worker.messages` defines the messages."""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import signal
import sys
import threading
from typing import Any

from moonfed.edge_client.worker.messages import decode, encode

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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
        """Wait for `check` or `train`; return it with its fields."""
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


class LogForwarder(logging.Handler):
    """A log handler that forwards records to the parent."""

    def __init__(self, parent: ParentPipe) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record to the parent."""
        self._parent.send("log", level=record.levelno, text=self.format(record))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the parent dies; code that never yields would not notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(0)
