"""The contract of stores: on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.store import Store
from tests.coordinator.storage.conftest import Open
from tests.support.store_records import FIRST, MODEL, RUN, update


def test_a_committed_round_shows_its_counted_devices_and_metrics(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    assert store.past_rounds("digits", None, 9) == []
    store.commit_round(
        FIRST, ["a"], {"model": MODEL}, metrics={"train_loss": 0.5}, metrics_before={"holdout_loss": 2.0}
    )
    store.put_metrics("digits", 0, {"accuracy": 0.1})
    store.put_metrics("digits", 1, {"accuracy": 0.8})
    store.put_metrics("digits", 1, {"accuracy": 0.9})
    view = run_view(store, RUN, None)
    assert (view.round, view.model) == (1, MODEL)
    assert view.initial_metrics == {"accuracy": 0.1, "holdout_loss": 2.0}
    (done,) = store.past_rounds("digits", None, 9)
    assert done.missing == ("b",)
    assert done.metrics == {"accuracy": 0.9, "train_loss": 0.5}


def test_a_killed_coordinator_resumes_its_round(open_store: Open) -> None:
    first = open_store()
    first.add_run(RUN)
    first.open_round(FIRST, ["a", "b", "c", "d"])
    first.abandon_round(FIRST, "because")
    again = AttemptId(run="digits", round=1, attempt=2)
    first.open_round(again, ["a", "b", "c", "d"])
    first.reports.replace(update("b", attempt=again))
    first.reports.replace(DeviceReport(id=again, device="c", outcome="declined", reason="busy"))
    first.reports.replace(DeviceReport(id=again, device="d", outcome="rejected", reason="NaN"))
    first.leases.release()
    second = open_store()  # the first one was never closed, as after a kill
    assert second.leases.acquire("digits")
    state = recovered_state(second, "digits")
    assert (state.committed, state.attempt) == (0, 2)
    assert state.open
    assert state.open.cohort == ("a", "b", "c", "d")
    assert [set(names) for names in (state.open.reported, state.open.declined, state.open.rejected)] == [
        {"b"},
        {"c"},
        {"d"},
    ]
    assert state.open.outstanding == ("a",)
    assert second.reports.of_attempt(again)[0] == update("b", attempt=again)
    second.commit_round(again, ["b"], {"model": MODEL}, metrics={}, metrics_before={})
    state = recovered_state(second, "digits")
    assert (state.committed, state.attempt, state.open) == (1, 1, None)


def test_the_attempt_after_an_abandoned_one_has_the_next_number(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.abandon_round(FIRST, "because")
    assert recovered_state(store, "digits").attempt == 2


def test_names_are_in_the_order_of_their_bytes(store: Store) -> None:
    names = ["Zebra", "_a", "a-b", "a.b", "ab", "a_b", "B"]
    store.add_run(RUN)
    store.open_round(FIRST, names)
    for name in names:
        store.devices.seen(name, {})
        store.reports.replace(update(name))
    assert [device.device for device in store.devices.devices()] == sorted(names)
    assert [report.device for report in store.reports.of_attempt(FIRST)] == sorted(names)


def test_a_transaction_that_fails_in_the_middle_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])

    def fail(*_: object) -> None:
        raise OSError("a fault of the test's")

    with monkeypatch.context() as failing:
        failing.setattr(references, "prune", fail)
        with pytest.raises(OSError, match="a fault of the test's"):
            store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={"loss": 1.0}, metrics_before={})
    found = store.round(FIRST)
    assert found
    assert (found.status, found.blobs, store.metrics("digits", 1)) == ("open", {}, {})
    assert store.latest_counted("digits") == {}
    assert not store.refers_to(MODEL.sha256)


def test_a_device_that_reports_and_connects_concurrently_is_one_row(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(store.devices.seen, "a", {"torch": "2.6"}) for _ in range(16)]
        done += [threads.submit(store.reports.replace, update("a")) for _ in range(16)]
        done += [threads.submit(store.put_metrics, "digits", 0, {"b": 1.0, "a": 2.0}) for _ in range(16)]
    for work in done:
        work.result()
    assert len(store.devices.devices()) == 1
    assert store.reports.of_attempt(FIRST) == [update("a")]
    assert store.metrics("digits", 0) == {"a": 2.0, "b": 1.0}


def test_an_interrupted_reduction_is_repeated(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    store.reports.record(update("a"))
    store.begin_reducing(FIRST)
    state = recovered_state(store, "digits")
    assert state.open is not None
    assert (state.open.reported, state.open.overdue) == (frozenset({"a"}), True)
    shown = run_view(store, RUN, state).open_round
    assert shown
    assert (shown.round, shown.attempt, shown.reported) == (1, 1, ("a",))
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert store.past_rounds("digits", None, 9)[0].counted == ("a",)
