"""Snapshots of a run in the database, and the events between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moonfed.control.events import NAMES, RoundAbandoned, RoundOpened, UpdateReceived
from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.runs.snapshot import RunSnapshot, events_between, read_snapshot
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound
from tests.support.store_records import FIRST, MODEL, RUN, update


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "coordinator.db")
    opened.add_run(RUN)
    yield opened
    opened.close()


def between(before: RunSnapshot, after: RunSnapshot) -> list[Any]:
    return list(events_between(before, after))


def kinds(before: RunSnapshot, after: RunSnapshot) -> list[tuple[str, int, str]]:
    return [(NAMES[type(event)], event.round, getattr(event, "device", "")) for event in between(before, after)]


def test_a_deleted_run_has_no_snapshot(store: Store) -> None:
    with pytest.raises(NotFound, match="'other'"):
        read_snapshot(store, "other", None)


def test_a_round_opens_and_its_reports_arrive_once(store: Store) -> None:
    idle = read_snapshot(store, "digits", None)
    assert (idle.state.open, idle.newest_past, kinds(idle, idle)) == (None, None, [])
    store.open_round(FIRST, ["a", "b", "c"])
    store.reports.record(DeviceReport(id=FIRST, device="b", outcome="rejected", reason="NaN"))
    opened = read_snapshot(store, "digits", idle)
    assert kinds(idle, opened) == [("round_opened", 1, ""), ("update_rejected", 1, "b")]
    store.reports.record(update("b"))
    store.reports.record(update("a"))
    later = read_snapshot(store, "digits", opened)
    events = between(opened, later)
    assert {(type(event), event.device) for event in events} == {(UpdateReceived, "a"), (UpdateReceived, "b")}
    assert {event.pending for event in events} == {1}, "the devices that the round waits for"
    assert kinds(later, read_snapshot(store, "digits", later)) == []


def test_an_attempt_names_the_updates_that_it_reuses(store: Store) -> None:
    idle = read_snapshot(store, "digits", None)
    store.open_round(FIRST, ["a", "b"])
    store.reports.record(update("a"))
    store.abandon_round(FIRST, "because", {"a": 1})
    store.open_round(replace(FIRST, attempt=2), ["a", "b"], {"a": 1})
    abandoned, opened = between(idle, read_snapshot(store, "digits", idle))
    assert (type(abandoned), abandoned.missing) == (RoundAbandoned, ("a", "b"))
    assert opened == RoundOpened(round=1, attempt=2, cohort=("a", "b"), reused=("a",))


def test_rounds_that_ended_meanwhile_are_published_in_order(store: Store) -> None:
    idle = read_snapshot(store, "digits", None)
    store.open_round(FIRST, ["a", "b"])
    store.abandon_round(FIRST, "because")
    again = replace(FIRST, attempt=2)
    store.open_round(again, ["a", "b"])
    store.commit_round(again, ["a"], {"model": MODEL}, metrics={"loss": 0.5}, metrics_before={})
    store.open_round(replace(FIRST, round=2), ["a"])
    after = read_snapshot(store, "digits", idle)
    assert kinds(idle, after) == [
        ("round_abandoned", 1, ""),
        ("round_committed", 1, ""),
        ("metrics_recorded", 1, ""),
        ("round_opened", 2, ""),
    ]
    abandoned, committed, metrics, _ = between(idle, after)
    assert (abandoned.reason, abandoned.missing) == ("because", ("a", "b"))
    assert (committed.counted, committed.model) == (("a",), MODEL)
    assert metrics.metrics == {"loss": 0.5}
    assert after.newest_past == again
    assert read_snapshot(store, "digits", after).past == []


def test_the_first_snapshot_begins_after_the_rounds_of_the_past(store: Store) -> None:
    store.open_round(FIRST, ["a"])
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    first = read_snapshot(store, "digits", None)
    assert (first.newest_past, first.past) == (FIRST, [])
    second = replace(FIRST, round=2)
    store.open_round(second, ["a"])
    store.abandon_round(second, "because")
    store.open_round(replace(second, attempt=2), ["a"])
    within = read_snapshot(store, "digits", None)
    assert (within.newest_past, within.past) == (second, []), "the attempt before the open one"
