"""Replacement of lost devices, reuse of delivered updates, failing and pausing, over real TLS and across restarts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.errors import WrongState
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in, two_devices
from tests.support.coordinator import (
    PARAMETERS,
    SCAFFOLD,
    Device,
    ask,
    make_bundle,
    model_bytes,
    model_values,
)
from tests.support.postgresql import Server

pytestmark = pytest.mark.slow

ALL = "all"
Until = Callable[[Callable[[], bool]], None]


def leave(device: Device) -> None:
    ask(device.fleet.Leave, fleet_pb2.LeaveRequest(device=device.name))


def decline(device: Device, work: fleet_pb2.Assignment) -> None:
    request = fleet_pb2.DeclineRequest(
        device=device.name, run=work.run, round=work.round, attempt=work.attempt, reason="busy"
    )
    ask(device.fleet.Decline, request)


def test_a_cohort_of_10_in_a_fleet_of_20_commits_without_3_devices_on_the_first_attempt(fleet: Fleet) -> None:
    token = fleet.operator.token(uses=20)
    devices = {name: fleet.device(name, token) for name in (f"cam-{number:02}" for number in range(20))}
    sessions = {name: device.connect() for name, device in devices.items()}
    ten = 10
    fleet.start(cohort=ten, quorum=ALL, heartbeat_timeout=4.0, minimum_devices=20)
    cohort = list(fleet.operator.run("run").open_round.cohort)
    assert len(cohort) == 10
    work = {name: sessions[name].assignment() for name in cohort}
    left, declined, dead = cohort[:3]
    for name in cohort[3:]:
        devices[name].submit(work[name], model_bytes(1.0))
    leave(devices[left])
    decline(devices[declined], work[declined])
    sessions[dead].leave()  # it sends nothing more, and is lost after the heartbeat timeout
    joined = set[str]()
    while len(joined) < 3:
        for name in set(fleet.operator.run("run").open_round.replacements) - joined:
            devices[name].submit(sessions[name].assignment(), model_bytes(1.0))
            joined.add(name)
        time.sleep(0.02)
    assert not joined & set(cohort)
    ended = list(fleet.operator.watch("run"))[-1].run
    assert ended.status == "finished"
    (only,) = fleet.operator.rounds("run")
    assert only.attempt == 1
    assert sorted(only.counted) == sorted([*cohort[3:], *joined])
    assert sorted(only.missing) == sorted(cohort[:3])


def test_a_device_that_left_returns_to_its_round(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet, quorum=ALL)
    sessions[0].assignment()
    work = sessions[1].assignment()
    leave(devices[0])
    with pytest.raises(Exception, match="has left"):
        sessions[0].next()
    opened = fleet.operator.run("run")
    assert list(opened.open_round.left) == ["cam-1"]
    assert "cam-1 (has left)" in opened.waiting
    again = devices[0].connect().assignment()
    assert again.attempt == 1
    assert not fleet.operator.run("run").open_round.left
    devices[0].submit(again, model_bytes(1.0))
    devices[1].submit(work, model_bytes(1.0))
    assert list(fleet.operator.watch("run"))[-1].run.status == "finished"


def test_an_update_of_an_abandoned_attempt_counts_once_in_the_next_with_the_devices_state(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet, quorum=ALL, deadline=2.0, rounds=2, bundle=make_bundle(**SCAFFOLD))
    change = {"variate_change": model_bytes(1.0, PARAMETERS)}
    first = sessions[0].assignment()
    devices[0].submit(first, model_bytes(1.0), samples=20, also=change)
    sessions[1].assignment()
    again = sessions[1].assignment()
    assert (again.round, again.attempt) == (1, 2)
    receipt = devices[0].submit(first, model_bytes(1.0), samples=20, also=change)[-1].receipt
    assert (receipt.round, receipt.attempt) == (1, 1), "it still counts"
    with pytest.raises(WrongState, match="from attempt 1 counts in round 1"):
        devices[0].submit(again, model_bytes(3.0), also=change)
    devices[1].submit(again, model_bytes(4.0), samples=10, also=change)
    second = [one.assignment() for one in sessions]
    assert [(work.round, work.counted_round, work.counted_attempt) for work in second] == [(2, 1, 1), (2, 1, 2)]
    abandoned, committed = fleet.operator.rounds("run")
    assert abandoned.status == "abandoned"
    assert list(committed.counted) == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(committed.model)), np.float32(2.0))


def test_a_held_update_survives_a_restart_between_and_within_attempts(tmp_path: Path, until: Until) -> None:
    with fleet_in(tmp_path) as fleet:
        devices, sessions = two_devices(fleet, quorum=ALL)
        devices[0].submit(sessions[0].assignment(), model_bytes(1.0), samples=20)
        decline(devices[1], sessions[1].assignment())  # too few updates: the attempt is abandoned
        for session in sessions:
            session.leave()
        until(lambda: len(fleet.operator.rounds("run")) == 1)
    for attempt in (2, 3):
        with fleet_in(tmp_path) as fleet, reconnected(fleet, "cam-2") as channel:
            device = Device("cam-2", channel)
            session = device.connect()
            work = session.assignment()
            assert work.attempt == attempt
            assert list(fleet.operator.run("run").open_round.reported) == ["cam-1"]
            if attempt == 2:
                session.leave()
                decline(device, work)
                until(lambda: len(fleet.operator.rounds("run")) == 2)
            else:
                device.submit(work, model_bytes(4.0), samples=10)
                ended = list(fleet.operator.watch("run"))[-1].run
                np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(2.0))
    assert not list((tmp_path / "state" / "spool").glob("*/*"))


def reconnected(fleet: Fleet, name: str) -> grpc.Channel:
    identity = load_identity(fleet.tmp / name)
    return transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", identity)


def test_a_run_fails_after_its_attempts_with_the_devices_reasons(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    device = fleet.device("cam-1")
    session = device.connect()
    fleet.start(max_attempts=2)
    for attempt in (1, 2):
        work = session.assignment()
        assert work.attempt == attempt
        decline(device, work)
    ended = list(fleet.operator.watch("run"))[-1].run
    assert ended.status == "failed"
    assert ended.reason.startswith("only 0 of 1")
    assert ended.reason.endswith("; declined: cam-1; cam-1: busy; round 1 was given up after 2 attempts in a row")
    assert fleet.operator.run("run").reason == ended.reason
    assert f"run 'run' has failed: {ended.reason}" in caplog.text
    assert session.ended().run == "run", "its device keeps nothing of it"
    request = control_pb2.PauseRunRequest(run="run")
    with pytest.raises(WrongState, match="run 'run' has failed; it cannot be paused or resumed"):
        ask(fleet.operator.control.PauseRun, request)


def test_a_run_without_eligible_devices_says_so_and_fails_at_its_limit(fleet: Fleet, until: Until) -> None:
    session = fleet.device("cam-1").connect()
    fleet.start(max_attempts=2, labels={"site": "berlin"}, deadline=0.3)
    assert "not eligible: cam-1 (without the label site=berlin)" in fleet.operator.run("run").waiting
    until(lambda: fleet.operator.run("run").status == "failed")
    reason = fleet.operator.run("run").reason
    assert "no eligible device within 0.3 s" in reason
    assert "cam-1 (without the label site=berlin)" in reason
    assert [len(entry.missing) for entry in fleet.operator.rounds("run")] == [0, 0]
    session.leave()


def test_a_paused_run_finishes_its_round_stays_paused_over_a_restart_and_resumes(tmp_path: Path, until: Until) -> None:
    with fleet_in(tmp_path) as fleet:
        devices, sessions = two_devices(fleet, rounds=2)
        work = [session.assignment() for session in sessions]
        paused = ask(fleet.operator.control.PauseRun, control_pb2.PauseRunRequest(run="run"))
        assert paused.status == "paused"
        for device, assignment in zip(devices, work, strict=True):
            device.submit(assignment, model_bytes(1.0))
        until(lambda: fleet.operator.run("run").round == 1)
        assert fleet.operator.run("run").waiting.startswith("paused")
    with fleet_in(tmp_path) as fleet, reconnected(fleet, "cam-1") as one, reconnected(fleet, "cam-2") as other:
        sessions = [Device("cam-1", one).connect(), Device("cam-2", other).connect()]
        assert fleet.operator.run("run").status == "paused"
        assert not fleet.operator.run("run").HasField("open_round")
        events = fleet.operator.watch("run")
        next(events)
        resumed = ask(fleet.operator.control.ResumeRun, control_pb2.ResumeRunRequest(run="run"))
        assert resumed.status == "running"
        assert next(events).kind == "resumed"
        assert {session.assignment().round for session in sessions} == {2}


def test_replicas_replace_devices_that_leave_either_of_them_and_pause_a_run_together(
    tmp_path: Path, postgresql_server: Server, bucket: str, until: Until
) -> None:
    shared = {"database": postgresql_server.new_database(), "blobs": bucket}
    with ExitStack() as stack:
        holder = stack.enter_context(fleet_in(tmp_path / "a", **shared))
        devices = {name: holder.device(name) for name in ("cam-1", "cam-2", "cam-3")}
        shutil.copytree(holder.state / "authority", tmp_path / "b" / "state" / "authority")
        follower = stack.enter_context(fleet_in(tmp_path / "b", **shared))
        for name in ("cam-2", "cam-3"):
            identity = load_identity(tmp_path / "a" / name)
            there = transport.open_channel(f"127.0.0.1:{follower.ports.fleet}", identity)
            devices[name] = Device(name, stack.enter_context(there))
        sessions = {name: device.connect() for name, device in devices.items()}
        holder.start(rounds=2, cohort=1, quorum=ALL, minimum_devices=3)
        until(lambda: len(holder.operator.run("run").open_round.cohort) == 1)
        (current,) = holder.operator.run("run").open_round.cohort
        gone = set[str]()
        while len(gone) < 2:
            sessions[current].assignment()
            gone.add(current)
            leave(devices[current])
            until(lambda: len(holder.operator.run("run").open_round.cohort) > len(gone))
            (current,) = set(holder.operator.run("run").open_round.cohort) - gone
        work = sessions[current].assignment()
        paused = ask(follower.operator.control.PauseRun, control_pb2.PauseRunRequest(run="run"))
        assert paused.status == "paused"
        assert holder.operator.run("run").status == "paused"
        devices[current].submit(work, model_bytes(1.0))
        for name in gone:
            sessions[name] = devices[name].connect()
        until(lambda: holder.operator.run("run").round == 1)
        (only,) = holder.operator.rounds("run")
        assert (only.attempt, list(only.counted)) == (1, [current])
        resumed = ask(follower.operator.control.ResumeRun, control_pb2.ResumeRunRequest(run="run"))
        assert resumed.status == "running"
        until(lambda: holder.operator.run("run").open_round.round == 2)


def test_another_replica_counts_an_update_of_an_abandoned_attempt(
    tmp_path: Path, postgresql_server: Server, bucket: str, until: Until
) -> None:
    shared = {"database": postgresql_server.new_database(), "blobs": bucket}
    with fleet_in(tmp_path / "a", **shared) as first:
        devices, sessions = two_devices(first, quorum=ALL)
        devices[0].submit(sessions[0].assignment(), model_bytes(1.0), samples=20)
        decline(devices[1], sessions[1].assignment())
        for session in sessions:
            session.leave()
        until(lambda: len(first.operator.rounds("run")) == 1)
        shutil.copytree(first.state / "authority", tmp_path / "b" / "state" / "authority")
    with fleet_in(tmp_path / "b", **shared) as second:
        identity = load_identity(tmp_path / "a" / "cam-2")
        with transport.open_channel(f"127.0.0.1:{second.ports.fleet}", identity) as channel:
            device = Device("cam-2", channel)
            work = device.connect().assignment()
            assert work.attempt == 2
            device.submit(work, model_bytes(4.0), samples=10)
            until(lambda: second.operator.run("run").status == "finished")
            found = model_values(second.operator.model(second.operator.run("run").model))
            np.testing.assert_array_equal(found, np.float32(2.0))
    assert not list(ObjectClient(bucket).listed("spool/")), "nothing of the round is left"
