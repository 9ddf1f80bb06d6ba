"""State directories as a kill leaves them at each commit point: the old state or the new one, never a mixture."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from moonfed import transport
from moonfed.blobs import ref_of_bytes
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.rounds.events import Reduce
from moonfed.coordinator.rpc.convert_settings import run_settings
from moonfed.coordinator.runs.close_round import RoundResult, reduce_round
from moonfed.coordinator.runs.global_state import load_global_states
from moonfed.coordinator.runs.metric_means import holdout_metrics, train_metrics
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.errors import Corrupt, WrongState
from moonfed.manifest import WEIGHTS_FILE
from moonfed.v1 import control_pb2, fleet_pb2
from tests.support import coordinator
from tests.support.coordinator import OperatorCalls, ask, model_bytes, model_values

FIRST = AttemptId(run="r", round=1, attempt=1)
Until = Callable[[Callable[[], bool]], None]


@dataclass
class Left:
    """Leave the state of a killed coordinator: an open round with two acknowledged updates, of 1.0 and 4.0."""

    storage: Storage
    quorum: float = 0.5
    record: RunRecord = field(init=False)

    def __post_init__(self) -> None:
        bundle = coordinator.make_bundle()
        for content in bundle.contents.values():
            self.storage.blobs.put_bytes(content)
        self.record = RunRecord(
            run="r",
            created=1.0,
            status="running",
            settings=run_settings(
                coordinator.settings(1, minimum_devices=2, quorum=control_pb2.Amount(fraction=self.quorum))
            ),
            manifest=bundle.ref,
            method="fedavg",
            initial=bundle.manifest.files[WEIGHTS_FILE],
        )
        self.storage.store.add_run(self.record)
        self.storage.store.open_round(FIRST, ["cam-1", "cam-2"])
        self.acknowledge("cam-1", model_bytes(1.0), 20)
        self.acknowledge("cam-2", model_bytes(4.0), 10)

    def acknowledge(self, device: str, content: bytes, samples: int) -> None:
        checked = self.storage.directory.root / "checked"
        checked.write_bytes(content)
        self.storage.spool.put(FIRST, device, {"model": checked})
        blobs = {"model": ref_of_bytes(content)}
        report = DeviceReport(id=FIRST, device=device, outcome="accepted", samples=samples, steps=1, blobs=blobs)
        self.storage.store.reports.replace(report)


def reduced(left: Left) -> RoundResult:
    """Reduce the closed round as a coordinator does before the commit."""
    manifest = coordinator.make_bundle().manifest
    command = Reduce(round=1, attempt=1, devices=("cam-1", "cam-2"))
    states = load_global_states(left.storage.store, left.storage.blobs, left.record, manifest)
    return reduce_round(left.storage, FIRST, command, manifest, left.record.settings, global_states=states)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def finished(state: Path) -> tuple[control_pb2.Run, list[control_pb2.Round], bytes]:
    """Start a coordinator on the remaining state and wait for the run's end."""
    with coordinator.coordinator_in_process(state) as ports:
        calls: OperatorCalls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            run = list(calls.watch("r"))[-1].run
            return run, calls.rounds("r"), calls.model(run.model)


def expect_round_1(state: Path) -> None:
    run, rounds, content = finished(state)
    assert run.status == control_pb2.RUN_STATUS_FINISHED
    assert [list(entry.counted) for entry in rounds] == [["cam-1", "cam-2"]]
    np.testing.assert_array_equal(model_values(content), np.float32(2.0))
    assert not list((state / "spool").glob("*/*"))


def test_killed_after_the_last_receipt(state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        (state / "authority").mkdir()
    expect_round_1(state)


def test_killed_while_reducing_before_the_commit(state: Path) -> None:
    with open_storage(state) as storage:
        left = Left(storage)
        reduced(left)
        (storage.spool.attempt_directory(FIRST) / "model").write_bytes(b"half a model")
    expect_round_1(state)


def test_killed_between_the_commit_and_the_end(state: Path) -> None:
    with open_storage(state) as storage:
        left = Left(storage)
        reduction = reduced(left)
        storage.store.commit_round(FIRST, ["cam-1", "cam-2"], reduction.blobs, metrics={}, metrics_before={})
    expect_round_1(state)


def test_killed_between_the_spooled_update_and_its_receipt(tmp_path: Path, state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        again = AttemptId(run="r", round=1, attempt=2)
        storage.store.abandon_round(FIRST, "because")
        storage.store.open_round(again, ["cam-1"])
        checked = state / "checked"
        checked.write_bytes(model_bytes(9.0))
        storage.spool.put(again, "cam-1", {"model": checked})
    with coordinator.coordinator_in_process(state) as ports, ExitStack() as stack:
        calls = coordinator.operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        assert not calls.run("r").open_round.reported, "without a receipt it does not count"
        identity = coordinator.enrol(tmp_path / "cam-1", calls.token(), "cam-1")
        device = coordinator.Device("cam-1", stack.enter_context(transport.open_channel(identity.address, identity)))
        device.submit(device.connect().assignment(), model_bytes(3.0))
        run = list(calls.watch("r"))[-1].run
        np.testing.assert_array_equal(model_values(calls.model(run.model)), np.float32(3.0))


def test_killed_between_the_abandonment_and_the_end_of_its_spool(state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        storage.store.abandon_round(FIRST, "because")
        assert storage.spool.update_file(FIRST, "cam-1", "model").is_file()
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            run = calls.run("r")
            assert not run.HasField("open_round")
            assert run.waiting == "waiting for 2 more devices: 0 online, 2 needed"
            assert [entry.reason for entry in calls.rounds("r")] == ["because"]
    assert not list((state / "spool").glob("*/*"))
    with open_storage(state) as storage:
        assert recovered_state(storage.store, "r").attempt == 2


def test_killed_after_everything(state: Path) -> None:
    with open_storage(state) as storage:
        left = Left(storage)
        reduction = reduced(left)
        storage.store.commit_round(FIRST, ["cam-1", "cam-2"], reduction.blobs, metrics={}, metrics_before={})
        storage.spool.delete(FIRST)
        storage.store.end_run("r", "finished")
    expect_round_1(state)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_damaged_spooled_update_counts_as_rejected_and_the_others_are_merged(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_storage(state) as storage:
        Left(storage)
        damage(storage.spool.update_file(FIRST, "cam-2", "model"))
    run, rounds, content = finished(state)
    assert run.status == control_pb2.RUN_STATUS_FINISHED
    assert [list(entry.counted) for entry in rounds] == [["cam-1"]]
    assert [list(entry.missing) for entry in rounds] == [["cam-2"]]
    np.testing.assert_array_equal(model_values(content), np.float32(1.0))
    assert "cam-2's update rejected: the coordinator's copy is damaged or missing" in caplog.text
    with open_storage(state) as storage:
        assert [report.outcome for report in storage.store.reports.of_attempt(FIRST)] == ["accepted", "rejected"]


@pytest.mark.parametrize("fault", [damage, Path.unlink])
def test_without_a_quorum_of_intact_updates_the_round_is_abandoned(
    state: Path, until: Until, fault: Callable[[Path], None]
) -> None:
    with open_storage(state) as storage:
        Left(storage, quorum=1.0)
        fault(storage.spool.update_file(FIRST, "cam-2", "model"))
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            until(lambda: len(calls.rounds("r")) == 1)
            (abandoned,) = calls.rounds("r")
            assert abandoned.status == control_pb2.ROUND_STATUS_ABANDONED
            assert abandoned.reason == (
                "1 of the 2 updates needed once every device had answered; rejected: cam-2; "
                "cam-2: the coordinator's copy is damaged or missing"
            )
            assert calls.run("r").round == 0


@pytest.mark.parametrize("file", [WEIGHTS_FILE, "manifest"])
def test_a_run_with_a_damaged_file_is_suspended_and_the_others_continue(
    tmp_path: Path, state: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = coordinator.make_bundle()
    ref = bundle.ref if file == "manifest" else bundle.manifest.files[file]
    with open_storage(state) as storage:
        left = Left(storage)
        content = storage.blobs.local(ref).read_bytes()
        storage.blobs.local(ref).write_bytes(content[:-1] + b"!")
        other = coordinator.make_bundle("other", start=3.0)
        for kept in other.contents.values():
            storage.blobs.put_bytes(kept)
        storage.store.add_run(
            replace(left.record, run="o", manifest=other.ref, initial=other.manifest.files[WEIGHTS_FILE])
        )
    with coordinator.coordinator_in_process(state) as ports, ExitStack() as stack:
        calls = coordinator.operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        identity = coordinator.enrol(tmp_path / "cam-1", calls.token(), "cam-1")
        channel = stack.enter_context(transport.open_channel(identity.address, identity))
        device, work = coordinator.Device("cam-1", channel), fleet_pb2.Assignment(run="r", round=1, attempt=1)
        reason = calls.run("r").waiting
        assert reason.startswith("suspended: the stored blob")
        assert "restart the coordinator" in reason
        assert any(record.levelname == "CRITICAL" and reason in record.message for record in caplog.records)
        assert calls.run("o").waiting == "waiting for 2 more devices: 0 online, 2 needed"
        watching = calls.watch("r")
        assert next(watching).run.waiting == reason
        with pytest.raises(WrongState, match="run 'r' is suspended"):
            ask(lambda _, timeout: next(watching), None)
        with pytest.raises(WrongState, match="run 'r' is suspended"):
            device.submit(work, model_bytes(9.0))
        report = fleet_pb2.ReportRequest(device="cam-1", run="r", round=1, attempt=1)
        with pytest.raises(WrongState, match="run 'r' is suspended"):
            ask(device.fleet.Report, report)
    with open_storage(state) as storage:
        storage.blobs.local(ref).write_bytes(content)
    expect_round_1(state)


def test_a_suspended_run_can_be_stopped(state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        storage.blobs.local(coordinator.make_bundle().ref).unlink()
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            stopped = ask(calls.control.StopRun, control_pb2.StopRunRequest(run="r"))
            assert stopped.status == control_pb2.RUN_STATUS_STOPPED
            assert [entry.reason for entry in calls.rounds("r")] == ["the run was stopped"]
            assert next(calls.watch("r")).run == stopped
    assert not list((state / "spool").glob("*/*"))


def test_a_kill_before_or_after_any_file_of_the_first_start_leaves_a_directory_that_starts(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []
    replace = os.replace

    def copy() -> None:
        copies.append(tmp_path / str(len(copies)))
        shutil.copytree(state, copies[-1])

    def replaced(old: Path, new: Path) -> None:
        copy()
        replace(old, new)
        copy()

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replaced)
        with coordinator.coordinator_in_process(state):
            pass
    assert len(copies) == 2 * 9, "the mark on the blobs, the authority's, the server's and the operator's files"
    for directory in copies:
        with coordinator.coordinator_in_process(directory) as ports:
            calls = coordinator.operator(directory, ports.fleet)
            with calls.channel:
                assert calls.token()


def test_an_empty_database_in_a_used_directory_is_rejected(state: Path) -> None:
    with coordinator.coordinator_in_process(state):
        pass
    (state / "coordinator.db").write_bytes(b"")
    with pytest.raises(Corrupt, match="is gone or empty, though"), open_storage(state):
        pass


def test_one_coordinator_at_a_time(state: Path) -> None:
    with open_storage(state), pytest.raises(WrongState, match="another coordinator"), open_storage(state):
        pass
    with open_storage(state):
        pass


def test_metrics_of_a_cohort() -> None:
    def report(samples: int, **metrics: float) -> DeviceReport:
        return DeviceReport(id=FIRST, device="a", outcome="accepted", samples=samples, metrics=metrics)

    assert train_metrics([report(1)]) == holdout_metrics([report(1)]) == {}
    told = [
        report(30, loss=1.0, holdout_accuracy=0.5, holdout_samples=10.0),
        report(10, loss=3.0, holdout_accuracy=1.0, holdout_samples=30.0),
        report(99, holdout_accuracy=0.0, holdout_samples=0.0),
    ]
    assert train_metrics(told) == {"train_loss": 1.5}
    assert holdout_metrics(told) == {"holdout_accuracy": 0.875, "holdout_samples": 40}
    measured = [report(30, inexactness=0.5), report(10, inexactness=0.9, other=7.0), report(99)]
    assert train_metrics(measured) == {"inexactness": pytest.approx(0.6), "other": 7.0}
    forged = [report(1, loss=1.0, train_loss=99.0)]
    assert train_metrics(forged) == {"train_loss": 1.0}
    huge = [report(1, loss=sign * 1.7e308, holdout_loss=1.7e308, holdout_samples=9.0) for sign in (1, 1, -1)]
    assert train_metrics(huge) == {}
    assert holdout_metrics(huge) == {"holdout_samples": 27}
