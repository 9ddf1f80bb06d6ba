"""Evaluations on devices by a coordinator, over real TLS: who is asked, what counts, and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.control.evaluations import DeviceScore
from moonfed.coordinator.records import EvaluationRecord
from moonfed.coordinator.runs import evaluations
from moonfed.coordinator.runs.evaluations import shown_evaluation
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2, control_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import Device, DeviceSession, ask, make_bundle, model_bytes, rejected

Until = Callable[[Callable[[], bool]], None]
BUNDLE = make_bundle()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluations, "POLL_SECONDS", 0.05)


def trained(fleet: Fleet, *names: str) -> tuple[list[Device], list[DeviceSession]]:
    """A run of one round that has finished, with these devices, which stay online."""
    devices = [fleet.device(name) for name in names]
    sessions = [device.connect() for device in devices]
    fleet.start(bundle=BUNDLE, minimum_devices=len(names))
    for device, session in zip(devices, sessions, strict=True):
        device.submit(session.assignment(), model_bytes(1.0))
    assert list(fleet.operator.watch("run"))[-1].run.status == "finished"
    return devices, sessions


def evaluate(
    fleet: Fleet, round_: int | None = None, seconds: float = 600.0, *, again: bool = False
) -> control_pb2.DeviceEvaluation:
    request = control_pb2.EvaluateRunRequest(run="run", round=round_, deadline_seconds=seconds, again=again)
    found = ask(fleet.operator.control.EvaluateRun, request).on_devices
    assert isinstance(found, control_pb2.DeviceEvaluation)
    return found


def shown(fleet: Fleet) -> control_pb2.DeviceEvaluation:
    """The evaluation of the newest model."""
    request = control_pb2.ListEvaluationsRequest(run="run")
    found = ask(lambda asked, timeout: list(fleet.operator.control.ListEvaluations(asked, timeout=timeout)), request)
    evaluation = found[-1].on_devices
    assert isinstance(evaluation, control_pb2.DeviceEvaluation)
    return evaluation


def fetch(device: Device, sha256: str) -> bytes:
    request = blob_pb2.FetchRequest(device=device.name, sha256=sha256)
    return b"".join(chunk.data for chunk in device.fleet.Fetch(request, timeout=20))


def fetched(device: Device, sha256: str) -> None:
    """Fetch with our errors."""
    ask(lambda *_, **__: fetch(device, sha256), None)


def test_devices_are_asked_once_and_the_evaluation_ends_when_all_have_answered(fleet: Fleet, until: Until) -> None:
    (one, two), (first, second) = trained(fleet, "cam-1", "cam-2")
    began = evaluate(fleet)
    assert (began.round, began.number, list(began.waiting)) == (1, 1, ["cam-1", "cam-2"])
    task = first.evaluation()
    assert (task.run, task.round, task.number) == ("run", 1, 1)
    assert task.manifest.sha256 == BUNDLE.ref.sha256
    assert task.model == fleet.operator.run("run").model
    one.scored(task, 15, 12)
    one.scored(task, 15, 12)  # its reply was lost
    one.scored(task, 3)  # the first answer stands
    until(lambda: list(shown(fleet).waiting) == ["cam-2"])
    assert not shown(fleet).closed
    two.scored(second.evaluation(), 5, 10)
    until(lambda: shown(fleet).closed > 0)
    summary = shown(fleet)
    assert (len(summary.scores), summary.median, summary.worst_decile) == (2, 0.5, 0.25)
    assert (summary.compared, summary.worse) == (2, 1)
    assert first.replies.qsize() == second.replies.qsize() == 0
    rejected(lambda: one.scored(task, 15), WrongState, "evaluation 1 of global model 1 of run 'run' has ended")


def test_a_request_is_idempotent_and_another_evaluation_replaces_one_that_has_ended(fleet: Fleet, until: Until) -> None:
    (device,), (session,) = trained(fleet, "cam-1")
    assert evaluate(fleet).number == evaluate(fleet, again=True).number == evaluate(fleet, 1).number == 1
    device.scored(session.evaluation(), 15)
    until(lambda: shown(fleet).closed > 0)
    repeated = evaluate(fleet)
    assert (repeated.number, repeated.closed > 0, len(repeated.scores)) == (1, True, 1)
    assert evaluate(fleet, again=True).number == 2
    task = session.evaluation()
    assert task.number == 2
    device.scored(task, 16)
    until(lambda: shown(fleet).closed > 0)
    assert [found.score for found in shown(fleet).scores] == [0.8]


def test_devices_that_decline_are_named_with_the_reason(fleet: Fleet, until: Until) -> None:
    (one, two), (first, second) = trained(fleet, "cam-1", "cam-2")
    evaluate(fleet)
    one.scored(first.evaluation(), declined="no holdout\n")
    two.scored(second.evaluation(), 20)
    until(lambda: shown(fleet).closed > 0)
    (group,) = shown(fleet).skipped
    assert (group.reason, list(group.devices)) == ("no holdout ", ["cam-1"])
    assert len(shown(fleet).scores) == 1


def test_a_device_outside_the_run_is_asked_and_may_fetch_what_it_needs_only_then(fleet: Fleet, until: Until) -> None:
    _, (session,) = trained(fleet, "cam-1")
    stranger = fleet.device("cam-9")
    theirs = stranger.connect()
    model = fleet.operator.run("run").model.sha256
    plan = BUNDLE.manifest.files["plan.pt"].sha256
    for sha256 in (model, plan, BUNDLE.ref.sha256):
        rejected(partial(fetched, stranger, sha256), NotFound, "no run")
    evaluate(fleet)
    task = theirs.evaluation()
    assert fetch(stranger, task.model.sha256) == fleet.operator.model(fleet.operator.run("run").model)
    assert ref_of_bytes(fetch(stranger, plan)).sha256 == plan
    assert fetch(stranger, task.signature.sha256) == BUNDLE.signature
    initial = BUNDLE.manifest.files["initial.safetensors"].sha256
    rejected(lambda: fetched(stranger, initial), NotFound, "no run")
    stranger.scored(task, 10)
    rejected(lambda: fetched(stranger, model), NotFound, "no run")
    session.evaluation()


def test_a_device_that_is_offline_is_expected_and_asked_when_it_returns(fleet: Fleet, until: Until) -> None:
    (one, two), (first, second) = trained(fleet, "cam-1", "cam-2")
    second.leave()
    until(lambda: not fleet.operator.devices()[1].online)
    evaluate(fleet)
    one.scored(first.evaluation(), 15)
    until(lambda: list(shown(fleet).waiting) == ["cam-2"])
    again = two.connect()
    two.scored(again.evaluation(), 15)
    until(lambda: shown(fleet).closed > 0)
    assert len(shown(fleet).scores) == 2


def test_a_revoked_device_is_not_waited_for(fleet: Fleet, until: Until) -> None:
    (one, _), (first, second) = trained(fleet, "cam-1", "cam-2")
    evaluate(fleet)
    one.scored(first.evaluation(), 15)
    second.evaluation()
    ask(fleet.operator.control.RevokeDevice, control_pb2.RevokeDeviceRequest(device="cam-2"))
    until(lambda: shown(fleet).closed > 0)
    assert list(shown(fleet).waiting) == []


def test_at_the_deadline_it_ends_without_the_missing_devices(fleet: Fleet, until: Until) -> None:
    (one, _), (first, _) = trained(fleet, "cam-1", "cam-2")
    evaluate(fleet, seconds=1.0)
    task = first.evaluation()
    until(lambda: shown(fleet).closed > 0)
    assert list(shown(fleet).waiting) == ["cam-1", "cam-2"]
    assert not shown(fleet).HasField("median")
    rejected(lambda: one.scored(task, 15), WrongState, "has ended")


def test_devices_that_do_not_fit_the_run_are_not_asked(fleet: Fleet, until: Until) -> None:
    (one,), (session,) = trained(fleet, "cam-1")
    unfit = fleet.device("cam-9")
    told = unfit.connect(interface="another/1")
    evaluate(fleet)
    one.scored(session.evaluation(), 15)
    until(lambda: shown(fleet).closed > 0)
    assert told.replies.qsize() == 0
    assert list(shown(fleet).waiting) == []


def test_a_running_run_is_evaluated_next_to_its_rounds(fleet: Fleet, until: Until) -> None:
    device = fleet.device("cam-1")
    session = device.connect()
    fleet.start(bundle=BUNDLE, rounds=2)
    work = session.assignment()
    evaluate(fleet, 0)
    task = session.evaluation()
    assert task.model.sha256 == BUNDLE.manifest.files["initial.safetensors"].sha256
    device.scored(task, 15)
    device.submit(work, model_bytes(1.0))
    assert session.assignment().round == 2
    until(lambda: shown(fleet).closed > 0)


def test_an_evaluation_survives_a_restart_of_the_coordinator(tmp_path: Path, until: Until) -> None:
    with fleet_in(tmp_path) as fleet:
        (one, _), (first, _) = trained(fleet, "cam-1", "cam-2")
        evaluate(fleet)
        one.scored(first.evaluation(), 15)
    with fleet_in(tmp_path) as fleet:
        assert list(shown(fleet).waiting) == ["cam-2"]
        for name in ("cam-1", "cam-2"):
            identity = load_identity(tmp_path / name)
            address = f"127.0.0.1:{fleet.ports.fleet}"
            device = Device(name, fleet.stack.enter_context(transport.open_channel(address, identity)))
            session = device.connect()
            if name == "cam-2":
                device.scored(session.evaluation(), 10)
        until(lambda: shown(fleet).closed > 0)
        assert [found.score for found in shown(fleet).scores] == [0.75, 0.5]
        assert session.replies.qsize() == 0


def test_a_deleted_run_takes_its_evaluation_along(fleet: Fleet, until: Until) -> None:
    (device,), (session,) = trained(fleet, "cam-1")
    evaluate(fleet)
    task = session.evaluation()
    ask(fleet.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run="run"))
    rejected(lambda: device.scored(task, 15), NotFound, "global model 1 of run 'run' is not being evaluated")
    model = task.model.sha256
    rejected(lambda: fetched(device, model), NotFound, "")


def test_wrong_requests_are_rejected(fleet: Fleet) -> None:
    trained(fleet, "cam-1")
    rejected(lambda: evaluate(fleet, 2), NotFound, "run 'run' has no global model 2; there are 0 to 1")
    for seconds in (0.0, -1.0, float("nan")):
        rejected(partial(evaluate, fleet, seconds=seconds), InvalidInput, "deadline_seconds is")
    request = control_pb2.EvaluateRunRequest(run="other", deadline_seconds=1.0)
    rejected(lambda: ask(fleet.operator.control.EvaluateRun, request), NotFound, "there is no run 'other'")


def test_an_evaluation_names_devices_by_reason_and_has_a_summary_once_there_is_a_score() -> None:
    record = EvaluationRecord(
        run="r",
        round=3,
        number=2,
        model=ref_of_bytes(b"model"),
        opened=1.0,
        deadline=2.0,
        declined={"cam-4": "small", "cam-3": "no holdout", "cam-2": "no holdout"},
        pending=frozenset({"cam-9", "cam-8", "cam-7"}),
        gone=frozenset({"cam-7"}),
    )
    found = shown_evaluation(record).on_devices
    assert found
    assert [(group.reason, group.devices) for group in found.skipped] == [
        ("no holdout", ("cam-2", "cam-3")),
        ("small", ("cam-4",)),
    ]
    assert (found.waiting, found.median) == (("cam-8", "cam-9"), None)
    scores = (
        DeviceScore(device="cam-1", samples=20, score=0.5, local_score=0.0),
        DeviceScore(device="cam-5", samples=40, score=0.75),
    )
    scored = shown_evaluation(replace(record, scores=scores)).on_devices
    assert scored
    assert (scored.median, scored.worst_decile, scored.scores) == (0.625, 0.5, scores)
    assert (scored.run, scored.round, scored.number, scored.closed) == ("r", 3, 2, None)
