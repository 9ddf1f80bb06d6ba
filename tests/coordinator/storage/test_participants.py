"""The devices of a run's cohorts, and the latest round that counted each."""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.storage.store import Store
from tests.support.store_records import FIRST, MODEL, RUN, update


def test_the_latest_round_that_counted_a_device_is_found(store: Store) -> None:
    store.add_run(RUN)
    assert store.latest_counted("digits") == {}

    def attempt(round_: int, number: int) -> AttemptId:
        return AttemptId(run="digits", round=round_, attempt=number)

    rejected = {attempt(2, 2): "b"}
    courses = [(attempt(1, 1), "ab"), (attempt(2, 1), "ab"), (attempt(2, 2), "bc"), (attempt(3, 1), "bd")]
    for id_, devices in courses:
        store.open_round(id_, ["a", "b", "c", "d"])
        for device in devices:
            store.reports.replace(update(device, attempt=id_))
        if id_ in rejected:
            store.reports.replace(
                DeviceReport(id=id_, device=rejected[id_], outcome="rejected", reason="it was damaged")
            )
        if id_ in (attempt(1, 1), attempt(2, 2)):
            store.commit_round(
                id_, devices.strip(rejected.get(id_, "")), {"model": MODEL}, metrics={}, metrics_before={}
            )
        elif id_ == attempt(2, 1):
            store.abandon_round(id_, "because")
    found = {device: (id_.round, id_.attempt) for device, id_ in store.latest_counted("digits").items()}
    assert found == {"a": (1, 1), "b": (1, 1), "c": (2, 2)}
    assert store.latest_counted("other") == {}


def test_every_device_of_any_cohort_is_a_participant(store: Store) -> None:
    for run in ("digits", "other", "idle"):
        store.add_run(replace(RUN, run=run))
    store.open_round(FIRST, ["a", "b"])
    store.abandon_round(FIRST, "because")
    for attempt, cohort in ((replace(FIRST, attempt=2), ["b", "c"]), (replace(FIRST, run="other"), ["d"])):
        store.open_round(attempt, cohort)
        store.commit_round(attempt, cohort[:1], {"model": MODEL}, metrics={}, metrics_before={})
    store.open_round(replace(FIRST, round=2), ["e"])
    assert store.participants("digits") == {"a", "b", "c", "e"}
    assert store.participants("other") == {"d"}
    assert store.participants("idle") == set()
