"""The inbox: the newest task of each run, its check and evaluations, and the newest target of each release."""

from __future__ import annotations

import logging
import threading

from moonfed.fleet.assignment import Assignment, EligibilityCheck, RunEnded
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.fleet.target_release import TargetRelease

Task = Assignment | EligibilityCheck | EvaluationTask | RunEnded | TargetRelease
MAX_WAITING = 256  # tasks

_log = logging.getLogger(__name__)
_Key = tuple[int, str, int]  # urgency, run or release, and the global model that is evaluated


class Inbox:
    """At most MAX_WAITING tasks; any more are dropped, because the coordinator asks again when this device connects.

    The checks, then the newest task of each run, then targets of releases, then evaluations; one is current at once.

    Within each group they are in the order of arrival. A check supersedes no other task: it waits until that is done.
    Targets and evaluations make way for what is more urgent.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[_Key, Task] = {}
        self._current: Task | None = None
        self._closed = False

    def put(self, task: Task) -> None:
        """Add a task; repeating the current one, as after a reconnect, has no effect.

        Unless it is a check: the coordinator asks again only if it cannot use the answer that is on its way.
        """
        with self._changed:
            if task == self._current and not isinstance(task, EligibilityCheck):
                return
            if _key(task) not in self._waiting and len(self._waiting) >= MAX_WAITING:
                _log.warning("there are already %d tasks of this device; dropped: %s", MAX_WAITING, task)
                return
            self._waiting[_key(task)] = task
            self._changed.notify_all()

    def put_back(self, task: Task) -> None:
        """Add the current task again, to be resumed after others, unless a newer one has taken its place."""
        with self._changed:
            self._waiting.setdefault(_key(task), task)

    def idle(self) -> bool:
        """Return whether nothing is waiting or in progress."""
        with self._changed:
            return self._current is None and not self._waiting

    def next_task(self, seconds: float) -> Task | None:
        """Wait for the next task and make it the current one; None on timeout, or once the inbox is closed."""
        with self._changed:
            self._current = None
            if not self._changed.wait_for(lambda: self._waiting or self._closed, seconds) or self._closed:
                return None
            self._current = self._waiting.pop(max(self._waiting, key=lambda key: key[0]))  # the first of several
            return self._current

    def close(self) -> None:
        """Release a waiting reader, which gets no further task."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def superseded(self, seconds: float = 0.0) -> bool:
        """Return whether a newer task of the current run has arrived; wait for one up to `seconds`."""
        with self._changed:
            return self._changed.wait_for(self._has_newer, seconds)

    def has_more_urgent(self) -> bool:
        """Return whether a task is waiting for which the current one should make way."""
        with self._changed:
            current = self._current
            return current is not None and any(key[0] > _key(current)[0] for key in self._waiting)

    def _has_newer(self) -> bool:
        return self._current is not None and _key(self._current) in self._waiting


def _key(task: Task) -> _Key:
    if isinstance(task, EvaluationTask):
        return 0, task.run, task.round
    if isinstance(task, TargetRelease):
        return 1, task.name, 0
    return 3 if isinstance(task, EligibilityCheck) else 2, task.run, 0
