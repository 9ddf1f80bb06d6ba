"""A watched run, step by step, without a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moonfed.client import Ended, RoundCommitted, Snapshot
from moonfed.client.calls.steps import Ask, Steps
from moonfed.client.calls.watch import Watch
from moonfed.client.records.events import Event
from moonfed.v1 import control_pb2


def run_message(round_: int, status: int = control_pb2.RUN_STATUS_RUNNING) -> control_pb2.Run:
    return control_pb2.Run(run="r", round=round_, status=control_pb2.RunStatus.ValueType(status))


def snapshot(round_: int) -> control_pb2.RunEvent:
    return control_pb2.RunEvent(kind=control_pb2.EVENT_KIND_SNAPSHOT, run=run_message(round_))


def committed(round_: int) -> control_pb2.RunEvent:
    return control_pb2.RunEvent(kind=control_pb2.EVENT_KIND_ROUND_COMMITTED, round=round_, attempt=1)


def round_message(round_: int, status: int = control_pb2.ROUND_STATUS_COMMITTED) -> control_pb2.Round:
    return control_pb2.Round(round=round_, attempt=1, status=control_pb2.RoundStatus.ValueType(status))


ROUNDS = [round_message(1), round_message(2, control_pb2.ROUND_STATUS_ABANDONED), *map(round_message, (2, 3, 4))]


def events(steps: Steps[list[Event]], answer: Callable[[Ask], Any]) -> list[Event]:
    """Perform steps with given answers."""
    try:
        step = next(steps)
        while True:
            assert isinstance(step, Ask)
            step = steps.send(answer(step))
    except StopIteration as end:
        value: list[Event] = end.value
        return value


def numbers(found: list[Event]) -> list[int]:
    return [event.round for event in found if isinstance(event, RoundCommitted)]


def listed(step: Ask) -> list[control_pb2.Round]:
    assert step.method == "ListRounds"
    return ROUNDS


def nothing(step: Ask) -> None:
    raise AssertionError(step)


def test_rounds_that_were_missed_are_read_from_the_record() -> None:
    watch = Watch("r")
    assert numbers(events(watch.receive(snapshot(0)), nothing)) == []
    assert numbers(events(watch.receive(committed(1)), nothing)) == [1]
    found = events(watch.receive(snapshot(3)), listed)
    assert numbers(found) == [2, 3]
    assert isinstance(found[-1], Snapshot)
    assert numbers(events(watch.receive(committed(3)), nothing)) == [], "it was in the snapshot"
    assert numbers(events(watch.receive(committed(4)), nothing)) == [4]


def test_rounds_before_the_watch_are_not_reported() -> None:
    watch = Watch("r")
    assert [type(event) for event in events(watch.receive(snapshot(3)), nothing)] == [Snapshot]


def test_a_run_that_falls_back_reports_its_rounds_again() -> None:
    watch = Watch("r")
    events(watch.receive(snapshot(0)), nothing)
    events(watch.receive(committed(1)), nothing)
    events(watch.receive(committed(2)), nothing)
    assert [type(event) for event in events(watch.receive(snapshot(1)), nothing)] == [Snapshot]
    assert numbers(events(watch.receive(committed(2)), nothing)) == [2]


def test_a_stream_that_ends_too_early_is_followed_by_the_end() -> None:
    watch = Watch("r")
    events(watch.receive(snapshot(2)), nothing)

    def answer(step: Ask) -> Any:
        return run_message(4, control_pb2.RUN_STATUS_STOPPED) if step.method == "GetRun" else ROUNDS

    found = events(watch.close(), answer)
    assert numbers(found) == [3, 4]
    assert isinstance(found[-1], Ended)
    assert watch.ended
    assert events(watch.close(), nothing) == []


def test_a_stream_of_an_active_run_is_replaced() -> None:
    watch = Watch("r")
    assert events(watch.close(), lambda _: run_message(0)) == []
    assert not watch.ended
