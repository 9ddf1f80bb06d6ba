"""The inbox: the newest task of each run, an assignment or the run's end."""

from __future__ import annotations

import threading

from moonfed.assignment import Assignment, RunEnded


class Inbox:
    """The newest task of each run, oldest run first; one is current at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, Assignment | RunEnded] = {}
        self._current: Assignment | RunEnded | None = None

    def put(self, task: Assignment | RunEnded) -> None:
        """Add a task; repeating the current one, as after a reconnect, has no effect."""
        with self._changed:
            if task != self._current:
                self._waiting[task.run] = task
                self._changed.notify_all()

    def idle(self) -> bool:
        """Return whether nothing is waiting or in progress."""
        with self._changed:
            return self._current is None and not self._waiting

    def next_task(self, seconds: float) -> Assignment | RunEnded | None:
        """Wait for the next task and make it the current one; None on timeout."""
        with self._changed:
            self._current = None
            if not self._changed.wait_for(lambda: self._waiting, seconds):
                return None
            self._current = self._waiting.pop(next(iter(self._waiting)))
            return self._current

    def superseded(self, seconds: float = 0.0) -> bool:
        """Return whether a newer task of the current run has arrived; wait for one up to `seconds`."""
        with self._changed:
            return self._changed.wait_for(self._has_newer, seconds)

    def _has_newer(self) -> bool:
        return self._current is not None and self._current.run in self._waiting
