"""The contract of stores: on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from moonfed.blobs import BlobRef, ref_of_bytes
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.rounds.retention import KEEP_ALL, Retention
from moonfed.coordinator.rounds.settings import Amount, RunSettings
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.store import RECEIPT_ROUNDS, Store
from moonfed.errors import AlreadyExists, NotFound, WrongState
from tests.coordinator.storage.conftest import Open

RUN = RunRecord(
    run="digits",
    created=1.5,
    status="running",
    settings=RunSettings(rounds=3, cohort=Amount(count=2), quorum=Amount(count=1), seed=2**64 - 1),
    manifest=ref_of_bytes(b"manifest"),
    method="fedavg",
    initial=ref_of_bytes(b"initial"),
)
FIRST = AttemptId(run="digits", round=1, attempt=1)
MODEL = ref_of_bytes(b"model 1")


def update(device: str, content: bytes = b"update", attempt: AttemptId = FIRST) -> DeviceReport:
    return DeviceReport(
        id=attempt,
        device=device,
        outcome="accepted",
        samples=10,
        steps=2,
        metrics={"loss": 0.5},
        blobs={"model": ref_of_bytes(content)},
    )


def test_a_run_is_kept_as_it_was_started(store: Store) -> None:
    store.add_run(RUN)
    assert store.run("digits") == RUN
    assert store.runs() == [RUN]
    with pytest.raises(AlreadyExists, match="'digits'"):
        store.add_run(RUN)
    with pytest.raises(NotFound, match="'other'"):
        store.run("other")
    store.end_run("digits", "stopped")
    assert store.run("digits").status == "stopped"


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
    assert (view.committed, view.model) == (1, MODEL)
    assert view.initial_metrics == {"accuracy": 0.1, "holdout_loss": 2.0}
    (done,) = store.past_rounds("digits", None, 9)
    assert done.missing == ("b",)
    assert done.metrics == {"accuracy": 0.9, "train_loss": 0.5}


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


def test_the_global_state_is_kept_with_its_round(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    blobs = {"model": MODEL, "momentum": ref_of_bytes(b"momentum"), "variate": ref_of_bytes(b"variate")}
    store.commit_round(FIRST, ["a"], blobs, metrics={}, metrics_before={})
    newest = store.latest_round("digits", "committed")
    assert newest
    assert (newest.blobs, newest.model) == (blobs, MODEL)


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


def test_a_report_replaces_the_earlier_one(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.reports.replace(DeviceReport(id=FIRST, device="a", outcome="rejected", reason="NaN"))
    store.reports.replace(update("a"))
    assert store.reports.of_attempt(FIRST) == [update("a")]


def test_a_token_is_used_up(store: Store) -> None:
    store.devices.add_token("0" * 64, 1, time.time() + 60)
    assert store.devices.enrol("cam-1", "1" * 64, "0" * 64, 5.0)
    assert not store.devices.enrol("cam-2", "2" * 64, "0" * 64, 5.0)
    assert [device.device for device in store.devices.devices()] == ["cam-1"]
    assert store.devices.enrol("cam-1", "1" * 64, "0" * 64, 6.0), "the device that used it up asks again"
    assert store.devices.devices()[0].certificate_expires == 6.0
    token = store.devices.token("0" * 64)
    assert token
    assert token.uses_left == 0
    assert store.devices.token("3" * 64) is None


def test_a_taken_name_uses_nothing_up(store: Store) -> None:
    store.devices.add_token("0" * 64, 2, time.time() + 60)
    assert store.devices.enrol("cam-1", "1" * 64, "0" * 64, 5.0)
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        store.devices.enrol("cam-1", "2" * 64, "0" * 64, 5.0)
    token = store.devices.token("0" * 64)
    assert token
    assert token.uses_left == 1


def test_a_devices_record_is_updated(store: Store) -> None:
    store.devices.seen("cam-1", {"torch": "2.6"})
    store.devices.seen("cam-1")
    store.devices.renewed("cam-1", "1" * 64, 77.0)
    device = store.devices.devices()[0]
    assert (device.platform, device.certificate_expires) == ({"torch": "2.6"}, 77.0)
    assert device.last_seen >= device.enrolled > 0


def committed(store: Store, round_: int, retention: Retention = KEEP_ALL, run: str = "digits") -> list[BlobRef]:
    """Commit a round with a model and a server rule's memory; return the released blobs."""
    attempt = AttemptId(run=run, round=round_, attempt=1)
    store.open_round(attempt, ["a"])
    blobs = {"model": ref_of_bytes(b"model %d" % round_), "momentum": ref_of_bytes(b"momentum %d" % round_)}
    return store.commit_round(attempt, ["a"], blobs, metrics={}, metrics_before={}, retention=retention)


def kept_models(store: Store, run: str = "digits") -> list[int]:
    return [found.id.round for found in store.past_rounds(run, None, 1000) if found.model]


@pytest.mark.parametrize(("last", "every"), [(1, 0), (3, 0), (2, 4), (5, 1), (40, 0)])
def test_old_models_go_with_the_commit_and_their_rounds_stay(store: Store, last: int, every: int) -> None:
    store.add_run(RUN)
    gone: list[BlobRef] = []
    for round_ in range(1, 31):
        gone += committed(store, round_, Retention(last=last, every=every))
    expected = [round_ for round_ in range(1, 31) if round_ > 30 - last or (every and round_ % every == 0)]
    assert kept_models(store) == expected
    assert len(store.past_rounds("digits", None, 1000)) == 30
    released = {ref_of_bytes(b"model %d" % round_) for round_ in range(1, 31) if round_ not in expected}
    momenta = {ref_of_bytes(b"momentum %d" % round_) for round_ in range(1, 30)}
    assert set(gone) == released | momenta
    assert not any(store.refers_to(ref.sha256) for ref in gone)
    assert store.refers_to(RUN.initial.sha256), "model 0 stays"
    newest = store.latest_round("digits", "committed")
    assert newest
    assert set(newest.blobs) == {"model", "momentum"}


def test_manual_pruning_reports_the_number_of_deleted_models(store: Store) -> None:
    store.add_run(RUN)
    for round_ in range(1, 11):
        committed(store, round_)
    models, released = store.prune_run("digits", Retention(last=2, every=5))
    assert models == 7
    assert {ref_of_bytes(b"model %d" % round_) for round_ in (1, 2, 3, 4, 6, 7, 8)} == set(released)
    assert kept_models(store) == [5, 9, 10]
    assert store.prune_run("digits", Retention(last=2, every=5)) == (0, [])
    with pytest.raises(NotFound, match="'other'"):
        store.prune_run("other", Retention())


def test_models_that_devices_may_have_started_from_stay_whatever_the_retention(store: Store) -> None:
    store.add_run(RUN)
    for round_ in range(1, 8):
        committed(store, round_)
    assert store.prune_run("digits", Retention(last=1, every=0), 4)[0] == 3
    assert kept_models(store) == [4, 5, 6, 7]


def test_a_device_that_joins_an_open_round_is_recorded_as_a_participant(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["cam-2"])
    for _ in range(2):
        store.join_round(FIRST, "cam-1")
    found = store.round(FIRST)
    assert found
    assert found.cohort == ("cam-1", "cam-2")
    assert store.participants("digits") == {"cam-1", "cam-2"}


def test_blobs_of_another_run_are_not_released(store: Store) -> None:
    for run in ("digits", "other"):
        store.add_run(replace(RUN, run=run), {"plan.pt": ref_of_bytes(b"plan")})
        committed(store, 1, run=run)
    store.end_run("digits", "finished")
    assert store.delete_run("digits") == []
    store.end_run("other", "stopped")
    names = (b"manifest", b"initial", b"plan", b"model 1", b"momentum 1")
    assert set(store.delete_run("other")) == {ref_of_bytes(name) for name in names}
    assert store.runs() == []


def test_only_a_run_that_has_ended_is_deleted_and_then_its_name_is_free(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.reports.replace(update("a"))
    store.put_metrics("digits", 0, {"accuracy": 0.5})
    with pytest.raises(WrongState, match="'digits' is running; stop it"):
        store.delete_run("digits")
    store.abandon_round(FIRST, "stopped")
    store.end_run("digits", "stopped")
    store.delete_run("digits")
    with pytest.raises(NotFound, match="'digits'"):
        store.delete_run("digits")
    store.add_run(RUN)
    assert store.past_rounds("digits", None, 9) == []
    assert store.metrics("digits", 0) == {}
    assert store.participants("digits") == set()


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
    incidents = (Incident(device="b", description="its change was scaled down"),)
    store.commit_round(
        FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={}, incidents=incidents, bases={"a": 0}
    )
    found = store.round(FIRST)
    assert found
    assert (found.incidents, found.bases) == (incidents, {"a": 0})


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


def test_names_are_in_the_order_of_their_bytes(store: Store) -> None:
    names = ["Zebra", "_a", "a-b", "a.b", "ab", "a_b", "B"]
    store.add_run(RUN)
    store.open_round(FIRST, names)
    for name in names:
        store.devices.seen(name)
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


def test_concurrent_enrolments_never_exceed_a_tokens_uses(store: Store) -> None:
    store.devices.add_token("0" * 64, 5, time.time() + 60)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(store.devices.enrol, f"cam-{n}", f"{n:064}", "0" * 64, 5.0) for n in range(16)]
    assert sum(enrolled.result() for enrolled in asked) == 5
    assert len(store.devices.devices()) == 5


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


def test_a_round_accepts_reports_while_it_is_open(store: Store) -> None:
    store.add_run(RUN)
    with pytest.raises(WrongState, match="round 1, attempt 1 of run 'digits' is unknown"):
        store.reports.record(update("a"))
    store.open_round(FIRST, ["a", "b", "c"])
    store.reports.record(DeviceReport(id=FIRST, device="a", outcome="rejected", reason="it was wrong"))
    store.reports.record(update("a"))
    store.reports.record(update("a"))
    with pytest.raises(AlreadyExists, match="a different update of 'a' already counts in round 1"):
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
        with pytest.raises(WrongState, match="round 1, attempt 1 of run 'digits' is reducing; it no longer"):
            store.reports.record(update(device))
    assert store.reports.of_attempt(FIRST) == [update("a"), declined]
    assert store.reports.has_receipt(FIRST, "a", update("a").blobs)
    assert store.past_rounds("digits", None, 9) == []


def test_an_interrupted_reduction_is_repeated(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    store.reports.record(update("a"))
    store.begin_reducing(FIRST)
    state = recovered_state(store, "digits")
    assert state.open is not None
    assert (state.open.reported, state.open.overdue) == (frozenset({"a"}), True)
    assert run_view(store, RUN, state).open_round == state.open
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert store.past_rounds("digits", None, 9)[0].counted == ("a",)


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
    with pytest.raises(WrongState, match="round 1, attempt 1 of run 'digits' has ended; it cannot be opened again"):
        store.reopen_round(FIRST)
    assert store.reports.of_attempt(FIRST) == [update("a")]
