"""Repeated checks: they go on while something is pending, and resume with the next addition."""

from __future__ import annotations

import threading

from moonfed.serving.grpc.repeated_check import RepeatedCheck
from tests.support.gates import until


def test_a_check_is_repeated_while_something_is_pending() -> None:
    pending, counts = {"first": 3}, list[int]()

    def check() -> None:
        for name, count in list(pending.items()):
            counts.append(count)
            if count > 1:
                pending[name] = count - 1
            else:
                del pending[name]

    repeated = RepeatedCheck(check, pending, seconds=0.001, thread_name="test")
    assert counts == []
    repeated.wake()
    until(lambda: not pending)
    until(lambda: not repeated._some.is_set())
    pending["second"] = 2
    repeated.wake()
    until(lambda: not pending)
    assert counts == [3, 2, 1, 2, 1]


def test_what_is_added_during_a_check_is_checked() -> None:
    """It may be added just before the thread begins to wait."""

    class Pending(list[str]):
        """A list to which something is added once it was found empty."""

        def __bool__(self) -> bool:
            found = len(self) > 0
            if not found and not late.is_set():
                late.set()
                self.append("late")
                repeated.wake()
            return found

    late, checked = threading.Event(), list[str]()
    pending = Pending(["first"])

    def check() -> None:
        checked.extend(pending)
        pending.clear()

    repeated = RepeatedCheck(check, pending, seconds=0.001, thread_name="test")
    repeated.wake()
    until(lambda: checked == ["first", "late"])
