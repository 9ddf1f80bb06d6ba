"""Each device's last result and its counted rounds, as the list of devices shows them."""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.storage.store import Store
from tests.support.store_records import FIRST, MODEL, RUN, update

SECOND = replace(FIRST, round=2)


def started(store: Store) -> Store:
    store.add_run(RUN)
    for device in "abcde":
        store.devices.seen(device, {})
    return store


def results(store: Store) -> dict[str, tuple[str, int, str, int]]:
    """Return outcome, round, reason and counted rounds of the devices in any ended round."""
    return {
        found.device: (found.last_result.outcome, found.last_result.round, found.last_result.reason, found.rounds)
        for found in store.devices.devices()
        if found.last_result
    }


def test_a_committed_round_gives_every_device_of_its_cohort_a_result(store: Store) -> None:
    started(store)
    store.open_round(FIRST, ["a", "b", "c", "d"])
    store.reports.record(update("a"))
    store.reports.record(DeviceReport(id=FIRST, device="b", outcome="rejected", reason="NaN"))
    store.reports.record(DeviceReport(id=FIRST, device="c", outcome="declined", reason="busy"))
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert results(store) == {
        "a": ("counted", 1, "", 1),
        "b": ("rejected", 1, "NaN", 0),
        "c": ("declined", 1, "busy", 0),
        "d": ("missing", 1, "", 0),
    }
    store.open_round(SECOND, ["a", "b"])
    store.commit_round(SECOND, ["a", "b"], {"model": MODEL}, metrics={}, metrics_before={})
    assert results(store)["a"] == ("counted", 2, "", 2)
    assert results(store)["b"] == ("counted", 2, "", 1)
    assert results(store)["c"] == ("declined", 1, "busy", 0)


def test_an_abandoned_attempt_counts_its_updates_but_no_rounds(store: Store) -> None:
    started(store)
    store.open_round(FIRST, ["a", "b", "c"])
    for device in "ab":
        store.reports.record(update(device))
    for _ in range(2):  # it is repeated until it is known to be recorded
        store.abandon_round(FIRST, "2 of the 3 updates needed")
    assert results(store) == {
        "a": ("abandoned", 1, "", 0),
        "b": ("abandoned", 1, "", 0),
        "c": ("missing", 1, "", 0),
    }
    (found,) = store.past_rounds("digits", None, 9)
    assert (found.updates, found.counted) == (2, ())


def test_the_devices_of_an_asynchronous_round_that_still_train_have_no_result(store: Store) -> None:
    started(store)
    store.open_round(FIRST, ["a", "b"])
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={}, bases={"a": 1})
    assert results(store) == {"a": ("counted", 1, "", 1)}


def test_a_device_that_nobody_knows_is_no_obstacle(store: Store) -> None:
    started(store)
    store.open_round(FIRST, ["a", "removed"])
    store.commit_round(FIRST, ["a", "removed"], {"model": MODEL}, metrics={}, metrics_before={})
    assert set(results(store)) == {"a"}
