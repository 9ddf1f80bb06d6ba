"""The inbox: the newest assignment or end of each run, waiting for its turn."""

from __future__ import annotations

import threading

from moonfed.assignment import Assignment, RunEnded


class Inbox:
    """The newest word on each run, oldest run first; one is worked on at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, Assignment | RunEnded] = {}
        self._current: Assignment | RunEnded | None = None

    def put(self, task: Assignment | RunEnded) -> None:
        """Adds a task; the coordinator says it again when a device comes back, which changes nothing."""
        with self._changed:
            if task != self._current:
                self._waiting[task.run] = task
                self._changed.notify_all()

    def idle(self) -> bool:
        """Whether nothing waits and nothing is worked on."""
        with self._changed:
            return self._current is None and not self._waiting

    def take(self, seconds: float) -> Assignment | RunEnded | None:
        """Waits for the next task and makes it the current one; None if there is none in time."""
        with self._changed:
            self._current = None
            if not self._changed.wait_for(lambda: self._waiting, seconds):
                return None
            self._current = self._waiting.pop(next(iter(self._waiting)))
            return self._current

    def superseded(self, seconds: float = 0.0) -> bool:
        """Whether there is newer word on the current task's run; waits for that up to some seconds."""
        with self._changed:
            return self._changed.wait_for(self._has_newer, seconds)

    def _has_newer(self) -> bool:
        return self._current is not None and self._current.run in self._waiting
