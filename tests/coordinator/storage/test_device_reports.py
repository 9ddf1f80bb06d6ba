"""Devices' reports: one counts and has a receipt; none is recorded once its round is reducing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.storage.store import RECEIPT_ROUNDS, Store
from moonfed.errors import AlreadyExists, WrongState
from tests.support.refusals import refused
from tests.support.store_records import FIRST, MODEL, RUN, update


def test_a_receipt_stands_after_the_commit_but_not_after_abandonment(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    blobs = update("a").blobs
    assert not store.reports.has_receipt(FIRST, "a", blobs)
    store.reports.replace(update("a"))
    assert store.reports.has_receipt(FIRST, "a", blobs)
    with pytest.raises(AlreadyExists, match="different update of 'a'"):
        store.reports.has_receipt(FIRST, "a", update("a", b"other").blobs)
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert store.reports.has_receipt(FIRST, "a", blobs)
    second = AttemptId(run="digits", round=2, attempt=1)
    store.open_round(second, ["a"])
    store.reports.replace(update("a", attempt=second))
    store.abandon_round(second, "because")
    assert not store.reports.has_receipt(second, "a", blobs)


def test_a_receipt_stands_while_a_later_attempt_may_count_the_update(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b", "c"])
    for device in ("a", "b"):
        store.reports.record(update(device))
    blobs, again = update("a").blobs, replace(FIRST, attempt=2)
    store.abandon_round(FIRST, "because", {"a": 1, "b": 1})
    assert store.reports.has_receipt(FIRST, "a", blobs)
    with pytest.raises(AlreadyExists, match="different update of 'a'"):
        store.reports.has_receipt(FIRST, "a", update("a", b"other").blobs)
    store.open_round(again, ["a", "c"], {"a": 1})
    assert [store.reports.has_receipt(FIRST, device, blobs) for device in ("a", "b")] == [True, False]
    store.commit_round(again, ["a", "c"], {"model": MODEL}, metrics={}, metrics_before={}, reused={"a": 1})
    assert store.reports.has_receipt(FIRST, "a", blobs)
    assert not store.reports.has_receipt(again, "a", blobs), "it has none of that attempt"


def test_a_report_replaces_the_earlier_one(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.reports.replace(DeviceReport(id=FIRST, device="a", outcome="rejected", reason="NaN"))
    store.reports.replace(update("a"))
    assert store.reports.of_attempt(FIRST) == [update("a")]


def test_receipts_of_long_ago_are_forgotten(store: Store) -> None:
    store.add_run(RUN)
    for round_ in range(1, RECEIPT_ROUNDS + 3):
        attempt = replace(FIRST, round=round_)
        store.open_round(attempt, ["a"])
        store.reports.replace(update("a", attempt=attempt))
        store.commit_round(attempt, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    blobs = update("a").blobs
    attempts = [replace(FIRST, round=round_) for round_ in range(1, RECEIPT_ROUNDS + 3)]
    held = [store.reports.has_receipt(attempt, "a", blobs) for attempt in attempts]
    assert held == [False] * 2 + [True] * RECEIPT_ROUNDS
    assert store.latest_counted("digits") == {"a": replace(FIRST, round=RECEIPT_ROUNDS + 2)}


def test_a_round_accepts_reports_while_it_is_open(store: Store) -> None:
    store.add_run(RUN)
    with refused(WrongState, "status", "unknown"):
        store.reports.record(update("a"))
    store.open_round(FIRST, ["a", "b", "c"])
    store.reports.record(DeviceReport(id=FIRST, device="a", outcome="rejected", reason="it was wrong"))
    store.reports.record(update("a"))
    store.reports.record(update("a"))
    with refused(AlreadyExists, "update", "a"):
        store.reports.record(update("a", b"another"))
    for outcome in ("rejected", "declined"):
        with pytest.raises(WrongState, match="'a' has already delivered its update"):
            store.reports.record(replace(update("a"), outcome=outcome))
    declined = DeviceReport(id=FIRST, device="b", outcome="declined", reason="busy")
    store.reports.record(declined)
    with pytest.raises(WrongState, match="'b' has declined round 1"):
        store.reports.record(update("b"))
    store.begin_reducing(FIRST)
    store.begin_reducing(FIRST)
    for device in ("a", "c"):
        with refused(WrongState, "status", "reducing"):
            store.reports.record(update(device))
    assert store.reports.of_attempt(FIRST) == [update("a"), declined]
    assert store.reports.has_receipt(FIRST, "a", update("a").blobs)
    assert store.past_rounds("digits", None, 9) == []
