"""Outcomes of devices in the attempts of runs: newest results, new names, and what is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import AttemptMeasurements, RoundRecord
from moonfed.coordinator.storage import device_outcomes
from moonfed.coordinator.storage.store import Store
from moonfed.fleet.assignment import AttemptId
from tests.support.store_records import FIRST, MODEL, RUN, update

SECOND = replace(FIRST, round=2)
PHASES = {"training": 4.0, "upload": 1.0, "waiting": 2.0, "reduction": 3.0, "commit": 0.5}
MEASURED = AttemptMeasurements(
    phases=PHASES,
    undelivered={"c": ("lost", "it left"), "b": ("missing", "offline")},
    training={"a": 4.0},
    received_bytes=10,
    assigned_bytes=7,
)


@pytest.fixture
def store(store: Store) -> Store:
    store.add_run(RUN)
    for device in "abcd":
        store.devices.seen(device, {})
    return store


def commit(store: Store, **fields: object) -> RoundRecord:
    store.open_round(FIRST, ["a", "b", "c", "d"])
    store.reports.record(update("a"))
    store.reports.record(update("d"))
    store.commit_round(FIRST, ["a", "d"], {"model": MODEL}, metrics={}, metrics_before={}, **fields)  # type: ignore[arg-type]
    found = store.round(FIRST)
    assert found
    return found


def newest(store: Store) -> dict[str, tuple[str, str, float]]:
    """Return the newest result of each device that has one, which its record shows, too."""
    found: dict[str, tuple[str, str, float]] = {}
    for device in store.devices.devices():
        for result in store.outcomes.of_device(device.device, 1):
            found[device.device] = (result.outcome, result.reason, result.seconds or 0.0)
            assert device.last_result == replace(result, seconds=None)
    return found


def test_a_committed_round_records_what_its_driver_measured(store: Store) -> None:
    incidents = [Incident(device="d", description="clipped"), Incident(device="d", description="capped")]
    found = commit(store, measured=MEASURED, incidents=incidents)
    assert (found.phases, found.seconds) == (PHASES, 10.5)
    assert found.outcomes == {"counted": 1, "incident": 1, "lost": 1, "missing": 1}
    assert (found.received_bytes, found.sent_bytes) == (10, 28)
    assert newest(store) == {
        "a": ("counted", "", 4.0),
        "b": ("missing", "offline", 0.0),
        "c": ("lost", "it left", 0.0),
        "d": ("incident", "clipped; capped", 0.0),
    }


def test_a_round_that_nobody_measured_has_its_seconds_only(store: Store) -> None:
    found = commit(store)
    assert (found.phases, found.received_bytes, found.sent_bytes) == ({}, 0, 0)
    assert found.outcomes == {"counted": 2, "missing": 2}


def test_an_update_of_an_earlier_attempt_is_abandoned_with_the_next_one(store: Store) -> None:
    again = replace(FIRST, attempt=2)
    store.open_round(FIRST, ["a", "b"])
    store.reports.record(update("a"))
    store.abandon_round(FIRST, "because", {"a": 1})
    store.open_round(again, ["a", "b"], {"a": 1})
    store.abandon_round(again, "because", measured=MEASURED)
    found = store.round(again)
    assert found
    assert found.outcomes == {"abandoned": 1, "lost": 1, "missing": 1}
    assert found.sent_bytes == 7  # "a" was not assigned again


def test_they_follow_a_new_name_and_end_with_the_device_and_the_run(store: Store) -> None:
    commit(store)
    store.devices.rename("a", "x")
    assert "a" not in newest(store)
    assert newest(store)["x"][0] == "counted"
    store.devices.remove("b")
    store.devices.seen("b", {})  # another one of that name
    assert set(newest(store)) == {"c", "d", "x"}
    store.end_run("digits", "stopped")
    store.delete_run("digits")
    assert newest(store) == {}


def test_only_the_newest_rounds_of_a_run_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_outcomes, "ROUNDS_KEPT", 1)
    commit(store)
    store.open_round(SECOND, ["a"])
    store.commit_round(SECOND, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert set(newest(store)) == {"a"}


def committed_rounds(store: Store, number: int) -> None:
    """Commit rounds of "a", which "b" misses."""
    for round_ in range(1, number + 1):
        attempt = replace(FIRST, round=round_)
        store.open_round(attempt, ["a", "b"])
        store.commit_round(attempt, ["a"], {"model": MODEL}, metrics={}, metrics_before={})


def test_a_device_s_history_is_of_all_runs_and_begins_with_the_newest(store: Store) -> None:
    committed_rounds(store, 3)
    other = replace(FIRST, run="faces")
    store.add_run(replace(RUN, run="faces"))
    store.open_round(other, ["a"])
    store.abandon_round(other, "because")
    found = [(one.run, one.round, one.outcome) for one in store.outcomes.of_device("a", 3)]
    assert found == [("faces", 1, "missing"), ("digits", 3, "counted"), ("digits", 2, "counted")]
    assert len(store.outcomes.of_device("a", 2**32 - 1)) == 4
    assert {one.outcome for one in store.outcomes.of_device("b", 9)} == {"missing"}
    assert store.outcomes.of_device("nobody", 9) == []


def test_a_run_s_outcomes_are_read_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    committed_rounds(store, 4)
    store.open_round(replace(FIRST, round=5), ["a"])  # which has not ended
    first = store.outcomes.of_run("digits", None, 3)
    assert [(found.round, found.attempt, found.status) for found in first] == [
        (round_, 1, "committed") for round_ in (1, 2, 3)
    ]
    assert first[0].outcomes == {"a": "counted", "b": "missing"}
    assert abs(first[0].time - store.outcomes.of_device("a", 9)[-1].time).total_seconds() < 1
    last = AttemptId(run="digits", round=first[-1].round, attempt=first[-1].attempt)
    assert [found.round for found in store.outcomes.of_run("digits", last, 3)] == [4]
    assert store.outcomes.of_run("nothing", None, 3) == []
    monkeypatch.setattr(device_outcomes, "ROUNDS_KEPT", 3)
    assert [found.round for found in store.outcomes.of_run("digits", None, 9)] == [3, 4]


def test_a_late_update_is_told_from_a_missing_one(store: Store) -> None:
    commit(store, measured=MEASURED)
    unknown = replace(FIRST, run="nothing")
    second = replace(FIRST, round=2)
    store.open_round(second, ["a"])
    offered = {"a": second, "b": FIRST, "c": FIRST, "d": FIRST, "x": FIRST, "y": unknown}
    for _ in range(2):
        assert store.outcomes.record_late(offered) == {"a": second}  # its round may still count it
    found = store.round(FIRST)
    assert found
    assert found.outcomes == {"counted": 2, "late": 2}
    assert newest(store)["b"] == ("late", "it offered its update after the round had closed", 0.0)
    assert newest(store)["d"][0] == "counted"
