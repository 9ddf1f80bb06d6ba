"""The devices of a run's cohorts, and the latest round that counted each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState
from tests.support.device_certificates import enrolled
from tests.support.refusals import refused
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


def test_the_clips_in_a_row_of_each_device_are_counted(store: Store) -> None:
    """A round that counts a device without a clip ends its row, one that does not count it changes nothing."""
    enrolled(store.devices, "a")
    store.add_run(RUN)
    courses = [("abc", "ab"), ("ab", "a"), ("ac", "ac"), ("b", "b")]
    for round_, (counted, clipped) in enumerate(courses, 1):
        attempt = replace(FIRST, round=round_)
        store.open_round(attempt, ["a", "b", "c", "d"])
        incidents = [Incident(device=device, description="clipped", clipped=True) for device in clipped]
        incidents.append(Incident(device="d", description="is far from the median"))
        store.commit_round(attempt, list(counted), {"model": MODEL}, metrics={}, metrics_before={}, incidents=incidents)
    assert store.clipped_in_a_row("digits") == {"a": 3, "b": 1, "c": 1}
    assert store.eligibility.clipped("digits", 2) == {"a"}
    assert store.clipped_in_a_row("other") == {}
    store.devices.rename("a", "gate")
    assert store.clipped_in_a_row("digits") == {"gate": 3, "b": 1, "c": 1}


def blobs_of(store: Store, *devices: str) -> list[str]:
    """The devices that may fetch the model of the run's first round."""
    return [device for device in devices if store.may_fetch(MODEL.sha256, device)]


def started(store: Store, *devices: str) -> None:
    for device in devices:
        enrolled(store.devices, device)
    store.add_run(RUN, {"model": MODEL})
    store.open_round(FIRST, devices)


@pytest.mark.parametrize("act", [DeviceRegistry.remove, partial(DeviceRegistry.rename, name="gate")])
def test_a_name_gives_no_part_in_the_runs_of_its_former_device(
    store: Store, act: Callable[[DeviceRegistry, str], object]
) -> None:
    started(store, "a", "b")
    names = ["b", "gate"] if act is not DeviceRegistry.remove else ["b"]
    act(store.devices, "a")
    assert blobs_of(store, "a", "b", "gate") == names
    enrolled(store.devices, "a")
    store.commit_round(FIRST, ["a", "b"], {"model": MODEL}, metrics={}, metrics_before={})
    assert blobs_of(store, "a", "b", "gate") == names
    assert store.latest_counted("digits") == {"b": FIRST}
    assert {found.device: found.rounds for found in store.devices.devices()}["a"] == 0


def test_an_update_of_an_earlier_attempt_makes_no_participant_of_a_removed_devices_name(store: Store) -> None:
    started(store, "a", "b")
    store.abandon_round(FIRST, "because", {"a": 1, "b": 1})
    store.devices.remove("a")
    store.open_round(replace(FIRST, attempt=2), ["a", "b", "c"], {"a": 1, "b": 1})
    assert store.participants("digits") == {"b", "c"}


def test_a_round_that_opens_with_a_device_that_was_just_removed_makes_no_participant_of_the_next_one(
    store: Store,
) -> None:
    started(store, "a", "b")
    store.devices.remove("a")
    store.open_round(replace(FIRST, attempt=2), ["a", "b"])
    enrolled(store.devices, "a")
    assert blobs_of(store, "a", "b") == ["b"]


def test_a_renamed_device_takes_no_part_over_from_the_former_device_of_that_name(store: Store) -> None:
    started(store, "a", "gate")
    store.devices.remove("gate")
    store.open_round(replace(FIRST, attempt=2), ["gate"])
    enrolled(store.devices, "c")
    store.devices.rename("c", "gate")
    assert blobs_of(store, "a", "c", "gate") == ["a"]


def test_blobs_are_fetched_with_valid_certificates_of_participants(store: Store) -> None:
    certificates = {device: enrolled(store.devices, device) for device in ("a", "b", "c")}
    store.devices.seen("d", {})  # without TLS
    store.add_run(RUN, {"model": MODEL})
    store.open_round(FIRST, ["a", "b", "d"])
    store.devices.revoke("b")
    assert store.certificates_for(MODEL.sha256) == {certificates["a"].serial, "b", "d"}
    assert store.certificates_for("0" * 64) == set()


def test_a_name_without_the_trusted_labels_of_its_former_device_takes_no_part(store: Store) -> None:
    """A coordinator that has yet to learn of the changes opens the round."""
    for device in ("a", "b", "c", "d"):
        enrolled(store.devices, device)
        store.devices.label(device, {"site": "ulm"})
    settings = replace(RUN.settings, labels={"site": "ulm"}, trusted_labels=True)
    store.add_run(replace(RUN, settings=settings), {"model": MODEL})
    for device in ("a", "c"):
        store.devices.remove(device)
        enrolled(store.devices, device)
    store.devices.label("d", {"site": "bonn"})
    store.open_round(FIRST, ["a", "b", "d"])
    store.replace_devices(FIRST, ["c"])
    store.join_round(FIRST, "c")
    assert store.participants("digits") == {"b"}
    assert blobs_of(store, "a", "b", "c", "d") == ["b"]


@pytest.mark.parametrize("recorded", ["record", "replace"])
def test_no_update_of_a_device_that_has_the_name_of_a_former_one_counts(store: Store, recorded: str) -> None:
    started(store, "a", "b")
    store.devices.remove("a")
    enrolled(store.devices, "a")
    record = getattr(store.reports, recorded)
    with refused(WrongState, "device", "a"):
        record(update("a"))
    record(update("b"))
    record(DeviceReport(id=FIRST, device="a", outcome="declined", reason="an operator removed it"))
    assert [(found.device, found.outcome) for found in store.reports.of_attempt(FIRST)] == [
        ("a", "declined"),
        ("b", "accepted"),
    ]
