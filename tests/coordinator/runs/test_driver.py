"""A driven run over real TLS: reports, retries, its end, and concurrent runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from moonfed.coordinator.records import AttemptId, AttemptMeasurements
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.updates.submission import CHECKED_AT_ONCE
from moonfed.errors import InvalidInput, WrongState
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import FULL, Fleet, two_devices
from tests.support.coordinator import WAIT, ask, model_bytes, model_values
from tests.support.refusals import refused

ALL = "all"


def test_a_failing_run_does_not_delay_the_updates_of_another(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, solved, abandon = threading.Event(), threading.Event(), Store.abandon_round

    def full(
        self: Store, attempt: AttemptId, reason: str, reusable: Mapping[str, int], measured: AttemptMeasurements
    ) -> None:
        tried.set()
        if not solved.is_set():
            raise FULL
        abandon(self, attempt, reason, reusable, measured)

    monkeypatch.setattr(Store, "abandon_round", full)
    monkeypatch.setattr("moonfed.coordinator.runs.persistence.RETRY_SECONDS", 0.05)
    devices = [fleet.device(f"cam-{number}") for number in range(CHECKED_AT_ONCE + 1)]
    fleet.start("one", minimum_devices=len(devices), quorum=ALL, deadline=0.2)
    sessions = [device.connect() for device in devices]
    work = [one.assignment() for one in sessions]
    assert tried.wait(WAIT)
    with ThreadPoolExecutor(CHECKED_AT_ONCE) as threads:
        stuck = [threads.submit(devices[n].submit, work[n], model_bytes(1.0)) for n in range(CHECKED_AT_ONCE)]
        while len(list((fleet.state / "spool" / "one").rglob("incoming/*/*"))) < CHECKED_AT_ONCE:
            time.sleep(0.02)
        fleet.start("two", minimum_devices=len(devices))
        second = sessions[-1].assignment()
        try:
            devices[-1].submit(second, model_bytes(1.0))
        finally:
            solved.set()
        for submitted in stuck:
            with pytest.raises(WrongState, match="is not open"):
                submitted.result(WAIT)


def test_declining_frees_the_round_and_can_be_repeated(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    devices, sessions = two_devices(fleet)
    work = [one.assignment() for one in sessions]
    request = fleet_pb2.DeclineRequest(
        device="cam-1", run="run", round=1, attempt=1, reason="no data yet\n2026-01-01 forged line\x00" + "x" * 5000
    )
    for _ in range(2):
        ask(devices[0].fleet.Decline, request)
    with pytest.raises(WrongState, match="has declined"):
        devices[0].submit(work[0], model_bytes(1.0))
    devices[1].submit(work[1], model_bytes(1.0))
    list(fleet.operator.watch("run"))
    assert fleet.operator.rounds("run")[0].counted == ["cam-2"]
    assert fleet.operator.rounds("run")[0].missing == ["cam-1"]
    assert "2026-01-01 forged line" in caplog.text
    assert "x" * 900 in caplog.text
    assert "x" * 1000 not in caplog.text


def test_progress_reaches_watchers(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    sessions[0].assignment()
    watching = fleet.operator.watch("run", progress=True)
    next(watching)
    report = fleet_pb2.ReportRequest(device="cam-1", run="run", round=1, attempt=1, fraction=0.25)
    assert not ask(devices[0].fleet.Report, report).stop
    event = next(watching)
    assert (event.kind, event.device, event.fraction) == ("progress", "cam-1", 0.25)
    report.fraction = float("nan")
    with refused(InvalidInput, "fraction", float("nan")):
        ask(devices[0].fleet.Report, report)


def test_a_round_without_quorum_leaves_the_model_unchanged_and_is_retried(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet, quorum=ALL, deadline=2.0)  # in which one update arrives
    before = fleet.operator.run("run").model
    devices[0].submit(sessions[0].assignment(), model_bytes(1.0))
    sessions[1].assignment()
    again = sessions[1].assignment()
    assert (again.round, again.attempt) == (1, 2)
    assert again.blobs["model"] == before
    abandoned = fleet.operator.rounds("run")[0]
    assert abandoned.status == "abandoned"
    assert abandoned.reason.endswith("; late: cam-2")
    assert list(abandoned.missing) == ["cam-1", "cam-2"]


def test_stopping_a_run_tells_its_devices_to_stop(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    work = sessions[0].assignment()
    stopped = ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
    assert stopped.status == "stopped"
    assert fleet.operator.rounds("run")[0].reason == "the run was stopped"
    report = fleet_pb2.ReportRequest(device="cam-1", run="run", round=1, attempt=1, fraction=0.5)
    assert ask(devices[0].fleet.Report, report).stop
    with pytest.raises(WrongState, match="has ended"):
        devices[0].submit(work, model_bytes(1.0))
    assert ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run")) == stopped


def test_two_runs_share_a_fleet(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start("one")
    fleet.start("two")
    session = device.connect()
    work = {reply.run: reply for reply in (session.assignment(), session.assignment())}
    assert set(work) == {"one", "two"}
    device.submit(work["two"], model_bytes(2.0))
    device.submit(work["one"], model_bytes(1.0))
    for name, value in (("one", 1.0), ("two", 2.0)):
        ended = list(fleet.operator.watch(name))[-1].run
        np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(value))


def test_a_device_that_answers_again_keeps_its_progress(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="a")
    fleet.start("run")
    check = session.check()
    device.answer(check, "a")
    work = session.assignment()
    device.report(work, 0.4)
    device.answer(check, "a")  # the reply to the first was lost
    assert dict(fleet.operator.run("run").open_round.progress) == {"cam-1": 0.4}
    device.submit(work, model_bytes(1.0))
