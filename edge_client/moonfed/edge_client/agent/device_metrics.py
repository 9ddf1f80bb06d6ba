"""Metrics of this device: counted here, and written to a file that node_exporter reads, replaced atomically."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from moonfed.edge_client.metrics_file import OUTCOMES, DeviceState, LastRound, RoundOutcome, exposition
from moonfed.edge_client.resources.board_sensors import SYSFS, powers, temperatures

WRITE_SECONDS = 15.0  # between two writes, if nothing happens
MODE = 0o644  # node_exporter is another user
_log = logging.getLogger(__name__)


class DeviceMetrics:
    """Counts rounds, and rewrites the file after each of them and every WRITE_SECONDS, in a thread."""

    def __init__(self, path: Path, *, sysfs: Path = SYSFS, write_seconds: float = WRITE_SECONDS) -> None:
        self._path = path
        self._sysfs = sysfs
        self._seconds = write_seconds
        self._rounds: dict[RoundOutcome, int] = dict.fromkeys(OUTCOMES, 0)
        self._last: LastRound | None = None
        self._connected: Callable[[], bool] = _never
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._failing = False
        self._thread: threading.Thread | None = None

    def start(self, connected: Callable[[], bool]) -> None:
        """Start writing, for another connection if it has started before; `connected`: returns whether it is online."""
        self._connected = connected
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
            self._thread.start()
        self.refresh()

    def refresh(self) -> None:
        """Write soon: something has changed."""
        self._due.set()

    def round_ended(self, outcome: RoundOutcome, round_: int, seconds: float, loss: float | None) -> None:
        """Count a round; its figures are those of the last one if its update counted."""
        self._rounds[outcome] += 1
        if outcome == "counted":
            self._last = LastRound(round=round_, seconds=seconds, loss=loss, ended=time.time())
        self.refresh()

    def stop(self) -> None:
        """Write at once that this device is not connected, and write no more until another start."""
        self._connected = _never
        thread, self._thread = self._thread, None
        if thread:
            self._stopping.set()
            self.refresh()
            thread.join()
        self.write()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._due.wait(self._seconds)
            self._due.clear()
            self.write()

    def write(self) -> None:
        """Write the file now; a failure is logged once."""
        with self._writing:  # the state is read under the lock, so that the last one written is the newest
            try:
                self._replace(exposition(self._state()))
                self._failing = False
            except OSError as error:
                if not self._failing:
                    _log.warning("cannot write the metrics file %s: %s", self._path, error)
                self._failing = True

    def _state(self) -> DeviceState:
        return DeviceState(
            connected=self._connected(),
            written=time.time(),
            rounds=self._rounds,
            last=self._last,
            temperatures=temperatures(self._sysfs),
            powers=powers(self._sysfs),
        )

    def _replace(self, text: str) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(MODE)
        os.replace(temporary, self._path)


def _never() -> bool:
    return False
