"""Rounds in the database: opened, joined, closed once, and read a few at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.rounds.protocol import SYNCHRONOUS
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState
from tests.support.refusals import refused
from tests.support.store_records import FIRST, MODEL, RUN, update


def test_rounds_are_read_a_few_at_a_time(store: Store) -> None:
    store.add_run(RUN)
    ids = [AttemptId(run="digits", round=round_, attempt=attempt) for round_ in (1, 2, 3) for attempt in (1, 2)]
    for attempt in ids:
        store.open_round(attempt, ["a"])
        if attempt.attempt == 2:
            store.commit_round(attempt, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
        else:
            store.abandon_round(attempt, "because")
    store.open_round(AttemptId(run="digits", round=4, attempt=1), ["a"])
    assert [found.id for found in store.past_rounds("digits", None, 4)] == ids[:4]
    assert [found.id for found in store.past_rounds("digits", ids[3], 4)] == ids[4:]
    assert store.past_rounds("digits", ids[-1], 4) == []
    assert store.past_rounds("other", None, 4) == []


def test_the_global_state_is_kept_with_its_round(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    blobs = {"model": MODEL, "momentum": ref_of_bytes(b"momentum"), "variate": ref_of_bytes(b"variate")}
    store.commit_round(FIRST, ["a"], blobs, metrics={}, metrics_before={})
    newest = store.latest_round("digits", "committed")
    assert newest
    assert (newest.blobs, newest.model) == (blobs, MODEL)


def test_a_device_that_joins_an_open_round_is_recorded_as_a_participant(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["cam-2"])
    for _ in range(2):
        store.join_round(FIRST, "cam-1")
    found = store.round(FIRST)
    assert found
    assert found.cohort == ("cam-1", "cam-2")
    assert store.participants("digits") == {"cam-1", "cam-2"}


def test_a_round_is_closed_once(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    with pytest.raises(WrongState, match="is committed; it cannot be committed"):
        store.commit_round(FIRST, [], {"model": ref_of_bytes(b"other")}, metrics={}, metrics_before={})
    with pytest.raises(WrongState, match="is committed; it cannot be abandoned"):
        store.abandon_round(FIRST, "because")
    (found,) = store.past_rounds("digits", None, 9)
    assert (found.counted, found.model) == (("a",), MODEL)
    second = replace(FIRST, round=2)
    store.open_round(second, ["a"])
    store.abandon_round(second, "because")
    store.abandon_round(second, "tried until it is known")
    with pytest.raises(WrongState, match="is abandoned; it cannot be committed"):
        store.commit_round(second, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert store.past_rounds("digits", None, 9)[1].reason == "because"


def test_incidents_and_base_rounds_are_kept_with_the_round(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    incidents = (Incident(device="b", description="its change was scaled down", clipped=True),)
    store.commit_round(
        FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={}, incidents=incidents, bases={"a": 0}
    )
    found = store.round(FIRST)
    assert found
    assert (found.incidents, found.bases) == (incidents, {"a": 0})


def test_a_reopened_round_has_no_reports(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    store.reports.record(update("a"))
    store.begin_reducing(FIRST)
    store.reopen_round(FIRST)
    assert store.reports.of_attempt(FIRST) == []
    state = recovered_state(store, "digits")
    assert state.open is not None
    assert (state.open.cohort, state.open.reported, state.open.overdue) == (("a", "b"), frozenset(), False)
    store.reports.record(update("a"))
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    with refused(WrongState, "ended attempt", "round 1, attempt 1 of run 'digits'"):
        store.reopen_round(FIRST)
    assert store.reports.of_attempt(FIRST) == [update("a")]


def test_replacements_join_an_open_round_as_participants(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["b", "c"])
    for _ in range(2):
        store.replace_devices(FIRST, ["d", "a"])
    state = recovered_state(store, "digits")
    assert state.open
    assert state.open.cohort == ("a", "b", "c", "d")
    assert (state.open.replacements, state.open.drawn) == (frozenset("ad"), 2)
    assert store.participants("digits") == {"a", "b", "c", "d"}


def test_held_updates_are_recovered_between_two_attempts_and_within_the_next(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    store.reports.record(update("a"))
    store.abandon_round(FIRST, "because", {"a": 1})
    between = recovered_state(store, "digits")
    assert (between.open, between.attempt, between.reusable) == (None, 2, {"a": 1})
    assert SYNCHRONOUS.needed_attempts(RUN.settings, between) == {(1, 1)}
    again = replace(FIRST, attempt=2)
    store.open_round(again, ["a", "b"], {"a": 1})
    within = recovered_state(store, "digits")
    assert within.open
    assert within.open.reused == {"a": 1}
    assert (within.open.reported, within.open.outstanding) == (frozenset("a"), ("b",))
    assert SYNCHRONOUS.needed_attempts(RUN.settings, within) == {(1, 1), (1, 2)}
    store.reports.replace(DeviceReport(id=again, device="a", outcome="rejected", reason="its copy is damaged"))
    damaged = recovered_state(store, "digits")
    assert damaged.open
    assert (damaged.open.reported, damaged.open.rejected) == (frozenset(), frozenset("a"))


def test_a_device_continues_from_the_attempt_that_its_update_was_trained_in(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    store.abandon_round(FIRST, "because", {"a": 1})
    again = replace(FIRST, attempt=2)
    store.open_round(again, ["a", "b"], {"a": 1})
    store.commit_round(again, ["a", "b"], {"model": MODEL}, metrics={}, metrics_before={}, reused={"a": 1})
    assert store.latest_counted("digits") == {"a": FIRST, "b": again}


def test_no_attempt_reuses_updates_that_started_from_a_replaced_state(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    second = replace(FIRST, round=2)
    store.open_round(second, ["a", "b"])
    store.abandon_round(second, "because", {"a": 1})
    store.replace_global_state(FIRST, {"model"}, {"model": ref_of_bytes(b"earlier")}, None, "damaged")
    assert recovered_state(store, "digits").reusable == {}
