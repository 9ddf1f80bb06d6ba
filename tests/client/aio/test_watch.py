"""A watched run over a scripted connection; the synchronous watch is generated from the same source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.client import Ended, Event, Interrupted, Round, RoundCommitted, Run, Snapshot
from moonfed.client.sync.connection import Connection
from moonfed.client.sync.watch import Watch
from moonfed.control.codec import to_message
from moonfed.errors import MoonfedError, ResourceExhausted, Unavailable
from moonfed.formatting import moment
from moonfed.v1 import control_pb2

BLOB = BlobRef("0" * 64, 1)


def run_at(round_: int, status: Any = "running") -> Run:
    return Run(
        run="r",
        round=round_,
        status=status,
        method="fedavg",
        created=moment(1.0),
        model=BLOB,
        initial_model=BLOB,
        manifest=BLOB,
    )


def snapshot(round_: int) -> Snapshot:
    return Snapshot(run=run_at(round_))


def committed(round_: int) -> RoundCommitted:
    return RoundCommitted(round=round_, attempt=1, counted=(), model=None)


def listed(round_: int, status: Any = "committed") -> Round:
    return Round(run="r", round=round_, attempt=1, status=status)


ROUNDS = [listed(1), listed(2, "abandoned"), *map(listed, (2, 3, 4))]


class Script(Connection):
    """A connection whose streams are given: each ends by itself, or with the error that is its last item."""

    def __init__(self, *streams: list[Event | MoonfedError], later: Run | None = None) -> None:
        self.streams, self.later, self.listings = list(streams), later, 0

    def each(self, *_: object, **__: object) -> Iterator[Any]:  # type: ignore[override]
        for event in self.streams.pop(0):
            if isinstance(event, MoonfedError):
                raise event
            yield to_message(control_pb2.RunEvent, event)

    def ask(self, *_: object, **__: object) -> Any:
        return self.later or run_at(0)

    def ask_all(self, *_: object, **__: object) -> Any:
        self.listings += 1
        return ROUNDS

    def sleep(self, seconds: float) -> None:
        assert seconds <= 10.0


def watched(*streams: list[Event | MoonfedError], later: Run | None = None) -> list[Event]:
    return list(Watch(Script(*streams, later=later), "r", progress=False).events())


def numbers(found: list[Event]) -> list[int]:
    return [event.round for event in found if isinstance(event, RoundCommitted)]


def kinds(found: list[Event]) -> list[type]:
    return [type(event) for event in found]


END = Ended(run=run_at(4, "finished"))


def test_rounds_that_were_missed_are_read_from_the_record() -> None:
    first: list[Event | MoonfedError] = [snapshot(0), committed(1), Unavailable("away")]
    found = watched(first, [snapshot(3), committed(3), committed(4), END])
    assert numbers(found) == [1, 2, 3, 4], "the third was in the snapshot"
    assert kinds(found)[2:6] == [Interrupted, RoundCommitted, RoundCommitted, Snapshot]
    assert isinstance(found[-1], Ended)


def test_rounds_before_the_watch_are_not_reported() -> None:
    assert kinds(watched([snapshot(4), END])) == [Snapshot, Ended]


def test_a_run_that_falls_back_reports_its_rounds_again() -> None:
    found = watched([snapshot(0), committed(1), committed(2), snapshot(1), committed(2), Ended(run=run_at(2))])
    assert numbers(found) == [1, 2, 2]


def test_a_stream_that_ends_too_early_is_followed_by_the_end() -> None:
    found = watched([snapshot(2)], later=run_at(4, "stopped"))
    assert numbers(found) == [3, 4]
    assert isinstance(found[-1], Ended)


def test_a_stream_of_an_active_run_is_replaced() -> None:
    assert kinds(watched([snapshot(4)], [snapshot(4), END])) == [Snapshot, Snapshot, Ended]


def test_an_error_that_is_final_ends_the_watch() -> None:
    with pytest.raises(ResourceExhausted, match="too much"):
        watched([snapshot(0), Unavailable("fell behind")], [ResourceExhausted("too much")])
