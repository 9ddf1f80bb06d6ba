"""A run as operators see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.rounds.sizes import updates_closing
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.store import Store
from moonfed.formatting import moment
from tests.support.store_records import FIRST, MODEL, RUN, update


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "coordinator.db")
    opened.add_run(RUN)
    yield opened
    opened.close()


def test_an_open_round_names_its_devices_by_what_they_did_and_why(store: Store) -> None:
    store.open_round(FIRST, ["a", "b", "c"])
    store.reports.record(update("a"))
    store.reports.record(DeviceReport(id=FIRST, device="b", outcome="rejected", reason="NaN"))
    view = run_view(store, RUN, recovered_state(store, "digits"), progress={"c": 0.5})
    assert (view.run, view.status, view.created, view.round) == ("digits", "running", moment(RUN.created), 0)
    assert view.model == view.initial_model == RUN.initial
    current = view.open_round
    assert current
    assert (current.round, current.attempt, current.cohort) == (1, 1, ("a", "b", "c"))
    assert (current.reported, current.rejected, current.lost) == (("a",), ("b",), ())
    assert (current.progress, current.reasons) == ({"c": 0.5}, {"b": "NaN"})
    assert current.target == updates_closing(RUN.settings, 3)


def test_a_round_that_has_just_ended_is_not_open(store: Store) -> None:
    store.open_round(FIRST, ["a"])
    state = recovered_state(store, "digits")  # which has yet to learn of the end
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    view = run_view(store, RUN, state)
    assert (view.open_round, view.round, view.model) == (None, 1, MODEL)


def test_a_run_that_has_ended_waits_for_nothing(store: Store) -> None:
    view = run_view(store, replace(RUN, status="failed", reason="the reducer"), None)
    assert (view.status, view.reason, view.waiting, view.active) == ("failed", "the reducer", "", False)
