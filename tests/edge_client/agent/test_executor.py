"""The device's parent process, or parts of it, in the process of the test."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.edge_client.agent import enrolment, main, transfers
from moonfed.edge_client.agent.compatibility import REJECTED
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.edge_client.agent.executor import Executor, _require_sizes
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.session import Session
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import (
    AlreadyExists,
    Corrupt,
    Denied,
    InvalidInput,
    MoonfedError,
    NotFound,
    ResourceExhausted,
    TrainingFailed,
    Unavailable,
    UnsafePlan,
    Untrusted,
)
from moonfed.fleet.assignment import AttemptId
from moonfed.fleet.messages import read_assignment
from moonfed.transport.client import Backoff
from tests.edge_client.conftest import SANDBOX, Bundle, Device
from tests.support.authority import DAY, certified_key
from tests.support.device_coordinator import Coordinator

HOUR = timedelta(hours=1)


@pytest.fixture
def settings(device: Device, samples: Path) -> WorkerSettings:
    return WorkerSettings(
        state=str(device.state),
        device="cam-1",
        data=str(samples),
        accelerator="cpu",
        holdout=0.0,
        threads=1,
        sandbox=SANDBOX,
    )


def test_a_device_whose_executor_dies_does_not_stay_online(
    link: FleetConnection, settings: WorkerSettings, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(inbox: Inbox, seconds: float) -> None:
        coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
        raise ValueError("a bug")

    monkeypatch.setattr(Inbox, "next_task", stumble)
    with pytest.raises(
        TrainingFailed, match="executor ended unexpectedly, with ValueError: a bug; start moonfed-client again"
    ):
        Session(settings, link, WorkerProcess(settings)).run()


def test_an_update_waits_until_the_coordinators_failure_has_passed(
    link: FleetConnection,
    settings: WorkerSettings,
    coordinator: Coordinator,
    bundle: Bundle,
    stored: StoredRound,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(transfers, "Backoff", lambda: Backoff(first=0.01))
    problems = [ResourceExhausted("the disk is full"), Corrupt("another sha256"), Unavailable("not now"),
                Untrusted("who is it"), MoonfedError("a problem")]  # fmt: skip
    coordinator.submit_problems = problems.copy()
    link.online.set()
    Executor(settings, link, WorkerProcess(settings), Inbox(), DeviceFingerprint(settings, {}))._submit(
        read_assignment(bundle.assignment()), stored
    )
    assert coordinator.rejected == len(problems)
    assert len(coordinator.updates) == 1
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize(
    "error", [AlreadyExists("another stands"), Denied("not in the cohort"), NotFound("no run"), InvalidInput("NaN")]
)
def test_a_rejected_update_is_not_sent_again(
    error: MoonfedError,
    link: FleetConnection,
    settings: WorkerSettings,
    coordinator: Coordinator,
    bundle: Bundle,
    stored: StoredRound,
) -> None:
    coordinator.submit_error = error
    work = Executor(settings, link, WorkerProcess(settings), Inbox(), DeviceFingerprint(settings, {}))
    work._submit(read_assignment(bundle.assignment()), stored)
    assert coordinator.rejected == 1


def test_a_full_disk_costs_neither_the_device_nor_the_name_that_it_was_to_keep(
    device: Device, settings: WorkerSettings, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.enrol(age=9 * DAY, left=DAY)
    before = read_identity(device.state)
    session = Session(settings, FleetConnection(before.address, before.name, before), WorkerProcess(settings))

    def full(directory: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(enrolment, "save_identity", full)
        session._renew_if_due()
    assert read_identity(device.state) == before
    session._renew_if_due()
    after = read_identity(device.state)
    assert certified_key(after.certificate) == coordinator.keys["cam-1"]
    assert len({certified_key(certificate) for certificate in coordinator.renewed}) == 1
    session._connection.close()


def test_a_job_contains_the_assignment_and_the_devices_budget(
    link: FleetConnection, settings: WorkerSettings, coordinator: Coordinator, bundle: Bundle
) -> None:
    fields = {"round": 4, "attempt": 2, "seed": 9, "counted_round": 3, "counted_attempt": 6}
    training = {"epochs": 3, "batch_size": 5, "views": 2}
    assignment = read_assignment(bundle.trained(coordinator.blobs, **training).assignment(run="tested", **fields))
    job = Executor(
        replace(settings, max_steps=7), link, WorkerProcess(settings), Inbox(), DeviceFingerprint(settings, {})
    )._prepare(assignment)
    assert job.id == AttemptId(run="tested", round=4, attempt=2)
    assert job.counted == AttemptId(run="tested", round=3, attempt=6)
    assert job.training == replace(bundle.manifest.training, **training)  # type: ignore[arg-type]
    assert job.seed == 9
    assert Job.from_document(json.loads(json.dumps(job.to_document()))) == job
    assert job.began is not None
    assert time.monotonic() - 60 < job.began <= time.monotonic()
    assert (job.max_steps, job.max_seconds, job.digest) == (7, None, assignment.digest(7))
    assert Path(job.files["model"]).read_bytes() == bundle.weights
    assert Path(job.plan_file).read_bytes() == bundle.plan


@pytest.mark.parametrize(("seconds", "hours", "left"), [(90.5, 1, 90.5), (90000.0, 1, 3600.0), (None, 2, 7200.0)])
def test_a_job_has_the_seconds_of_the_budget_or_until_the_window_closes(
    seconds: float | None, hours: int, left: float, link: FleetConnection, settings: WorkerSettings, bundle: Bundle
) -> None:
    assignment = read_assignment(bundle.assignment())
    closes = (datetime.now() + hours * HOUR).time()
    window = TrainingWindow((datetime.now() - HOUR).time(), closes)
    work = Executor(
        replace(settings, max_seconds=seconds),
        link,
        WorkerProcess(settings),
        Inbox(),
        DeviceFingerprint(settings, {}),
        window,
    )
    job = work._prepare(assignment)
    assert job.max_seconds == pytest.approx(left, abs=0 if left == seconds else 60)
    assert job.digest == assignment.digest(None, seconds, str(window))


def test_files_in_use_are_not_collected_as_the_oldest(
    link: FleetConnection, settings: WorkerSettings, bundle: Bundle
) -> None:
    work = Executor(settings, link, WorkerProcess(settings), Inbox(), DeviceFingerprint(settings, {}))
    assignment = read_assignment(bundle.assignment())
    job = work._prepare(assignment)
    files = [Path(job.manifest_file), Path(job.plan_file)]
    for file in files:
        os.utime(file, (0, 0))
    work._prepare(assignment)
    assert all(file.stat().st_mtime > 0 for file in files)


@pytest.mark.parametrize(
    ("age", "left", "shortest", "longest"),
    [
        (DAY, 90 * DAY, 24 * 3600, 24 * 3600),  # not due: a fresh call once a day
        (DAY, 16 * HOUR, 9540, 9600),  # due when a third of 40 hours is left
        (60 * DAY, 20 * DAY, 3600, 3600),  # due, but not renewed yet
        (2 * HOUR, HOUR / 2, 440, 450),  # due, and soon expired
    ],
)
def test_a_session_ends_in_time_to_renew_the_certificate(
    age: timedelta, left: timedelta, shortest: float, longest: float, device: Device, settings: WorkerSettings
) -> None:
    device.enrol(age=age, left=left)
    identity = read_identity(device.state)
    link = FleetConnection(identity.address, identity.name, identity)
    assert shortest <= Session(settings, link, WorkerProcess(settings))._session_seconds() <= longest
    link.close()


def test_a_signal_ends_the_device_even_while_it_writes_to_its_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def busy(text: str) -> int:
        raise RuntimeError("reentrant call")

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(sys.stderr, "write", busy)
        with pytest.raises(SystemExit) as ended:
            main._stop(signal.SIGTERM, None)
    assert ended.value.code == 0
    assert capfd.readouterr().err == "moonfed-client: stopped\n"


def test_a_worker_that_cannot_be_signalled_has_already_exited(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = os.killpg

    def zombies(group: int, number: int) -> None:  # as on macOS
        kill(group, number)
        raise PermissionError

    monkeypatch.setattr(os, "killpg", zombies)
    worker = WorkerProcess(settings)
    worker.check()
    assert not worker.running


def test_a_decline_that_fails_costs_nothing(
    link: FleetConnection, settings: WorkerSettings, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(link, "decline", stumble)
    work = Executor(settings, link, WorkerProcess(settings), Inbox(), DeviceFingerprint(settings, {}))
    work._decline(read_assignment(bundle.assignment()), "no reason")


def test_a_plan_that_fails_the_inspection_is_rejected_for_good_and_fetched_once(
    link: FleetConnection,
    settings: WorkerSettings,
    coordinator: Coordinator,
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inspected: list[str] = []

    def inspect(job: Job, should_continue: object) -> bool:
        inspected.append(job.plan_file)
        raise UnsafePlan("the plan uses 'aten::save'")

    worker = WorkerProcess(settings)
    monkeypatch.setattr(worker, "train", inspect)
    link.online.set()
    work = Executor(settings, link, worker, Inbox(), DeviceFingerprint(settings, {}))
    work._process(read_assignment(bundle.assignment(round=1)))
    fetched = len(coordinator.fetched)
    assert fetched
    for fields in ({"round": 2}, {"round": 3}, {"run": "next"}):
        work._process(read_assignment(bundle.assignment(**fields)))
    assert (len(inspected), len(coordinator.fetched)) == (1, fetched)
    assert all(declined.permanent for declined in coordinator.declined)
    assert [(each.run, each.round) for each in coordinator.declined] == [
        ("tested", 1),
        ("tested", 2),
        ("tested", 3),
        ("next", 1),
    ]
    assert {each.reason for each in coordinator.declined} == {"the plan uses 'aten::save'"}
    assert caplog.text.count(f"run tested: {REJECTED}") == 1


def test_an_unsafe_plan_does_not_affect_another_bundle(
    link: FleetConnection,
    settings: WorkerSettings,
    coordinator: Coordinator,
    bundle: Bundle,
    scaffold: Bundle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inspected: list[str] = []

    def inspect(job: Job, should_continue: object) -> bool:
        inspected.append(job.id.run)
        raise UnsafePlan("no") if job.id.run == "unsafe" else TrainingFailed("too warm")

    worker = WorkerProcess(settings)
    monkeypatch.setattr(worker, "train", inspect)
    work = Executor(settings, link, worker, Inbox(), DeviceFingerprint(settings, {}))
    scaffold.put_into(coordinator.blobs)
    work._process(read_assignment(bundle.assignment(run="unsafe")))
    for number in (1, 2):
        work._process(read_assignment(scaffold.assignment(run="honest", round=number)))
    assert inspected == ["unsafe", "honest", "honest"]
    assert [declined.permanent for declined in coordinator.declined] == [True, False, False]


def test_each_file_of_an_assignment_is_bounded_by_its_tensors(scaffold: Bundle) -> None:
    """Otherwise a coordinator could fill the device's disk."""
    for role in ("model", *scaffold.manifest.downlink):
        _require_sizes({role: BlobRef("0" * 64, 1 << 20)}, scaffold.manifest)
        with pytest.raises(InvalidInput, match=f"{role} of the assignment"):
            _require_sizes({role: BlobRef("0" * 64, 1 << 30)}, scaffold.manifest)
