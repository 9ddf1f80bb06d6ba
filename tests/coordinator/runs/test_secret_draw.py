"""The draw of cohorts is secret, and the secret stays the run's through attempts, restarts and failover."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.errors import WrongState
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support import coordinator, postgresql
from tests.support.coordinator import Device, DeviceSession
from tests.support.coordinator_programs import Programs
from tests.support.secret_draw import cohort_of, public_cohort_of, secret_of

Until = Callable[[Callable[[], bool]], None]
NAMES = [f"cam-{number}" for number in range(6)]
THREE = 3
HALF: dict[str, Any] = {"cohort": THREE, "quorum": THREE, "minimum_devices": 6}


def decline_round(devices: dict[str, Device], round_: int, attempt: int) -> None:
    """Have all devices decline an attempt, first its cohort, then the replacements, so that it is abandoned."""
    for _ in range(2):
        for name, device in devices.items():
            request = fleet_pb2.DeclineRequest(device=name, run="run", round=round_, attempt=attempt, reason="busy")
            try:
                coordinator.ask(device.fleet.Decline, request)
            except WrongState:
                continue  # not drawn yet, or declined before


def cohort(operator: coordinator.OperatorCalls, until: Until, attempt: int) -> list[str]:
    """Wait for an attempt at round 1 to open; return its cohort before any replacement."""
    until(lambda: operator.run("run").open_round.attempt == attempt)
    return sorted(operator.run("run").open_round.cohort)


def test_cohorts_of_two_runs_differ_though_their_seeds_and_devices_are_the_same(fleet: Fleet, until: Until) -> None:
    names = [f"cam-{number}" for number in range(24)]
    for name in names:
        fleet.device(name).connect()
    found = {}
    for run in ("run", "again", "zero"):
        seed = 0 if run == "zero" else 7
        eight = 8
        fleet.start(run, minimum_devices=24, seed=seed, cohort=eight, quorum=eight)
        until(lambda run=run: fleet.operator.run(run).HasField("open_round"))  # type: ignore[misc]
        found[run] = sorted(fleet.operator.run(run).open_round.cohort)
        assert found[run] != public_cohort_of(seed, 1, 1, names, 8), "one of 735,471"
        assert found[run] == cohort_of(secret_of(fleet.state, run), 1, 1, names, 8)
    assert len({tuple(names) for names in found.values()}) == 3
    assert len({secret_of(fleet.state, run) for run in found}) == 3


def test_a_killed_coordinator_draws_the_next_attempts_from_the_same_secret(programs: Programs, until: Until) -> None:
    programs.serve()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    devices = {name: programs.device(name) for name in NAMES}
    start = ("run", "start", str(bundle), "--name", "run", "--cohort", "3", "--quorum", "3", "--minimum-devices", "6")
    programs.command(*start)
    secret = secret_of(programs.state, "run")
    for attempt in (1, 2, 3):
        sessions = [device.connect() for device in devices.values()]
        assert cohort(programs.operator(), until, attempt) == cohort_of(secret, 1, attempt, NAMES, 3)
        decline_round(devices, 1, attempt)
        until(lambda attempt=attempt: len(programs.operator().rounds("run")) == attempt)  # type: ignore[misc]
        programs.signal(signal.SIGKILL)
        programs.serve()
        devices = {name: programs.device(name) for name in NAMES}
        del sessions
    assert secret_of(programs.state, "run") == secret


def test_another_replica_draws_the_next_attempt_from_the_same_secret(
    tmp_path: Path, postgresql_server: postgresql.Server, bucket: str, until: Until
) -> None:
    shared = {"database": postgresql_server.new_database(), "blobs": bucket}
    attempts = (1, 2, 3)
    for attempt, place in zip(attempts, "abc", strict=True):
        if attempt > 1:
            shutil.copytree(tmp_path / "a" / "state" / "authority", tmp_path / place / "state" / "authority")
        with ExitStack() as stack:
            replica = stack.enter_context(fleet_in(tmp_path / place, **shared))
            if attempt == 1:
                devices = {name: replica.device(name) for name in NAMES}
                replica.start(**HALF)
            else:
                devices = {name: _connected(stack, tmp_path / "a" / name, replica, name) for name in NAMES}
            sessions: list[DeviceSession] = [device.connect() for device in devices.values()]
            store = open_store(shared["database"], used_before=True)
            stack.callback(store.close)
            expected = cohort_of(store.draw("run").secret, 1, attempt, NAMES, 3)
            assert cohort(replica.operator, until, attempt) == expected
            decline_round(devices, 1, attempt)
            until(lambda attempt=attempt, replica=replica: len(replica.operator.rounds("run")) == attempt)  # type: ignore[misc]
            for session in sessions:
                session.leave()


def _connected(stack: ExitStack, identity: Path, replica: Fleet, name: str) -> Device:
    channel = transport.open_channel(f"127.0.0.1:{replica.ports.fleet}", load_identity(identity))
    return Device(name, stack.enter_context(channel))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_later_rounds_are_drawn_from_the_secret_as_well(fleet: Fleet, until: Until, rounds: int) -> None:
    devices = {name: fleet.device(name) for name in NAMES}
    sessions = {name: device.connect() for name, device in devices.items()}
    fleet.start(rounds=rounds, **HALF)
    secret = secret_of(fleet.state, "run")
    for round_ in range(1, rounds + 1):
        expected = cohort_of(secret, round_, 1, NAMES, 3)
        for name in expected:
            work = sessions[name].assignment()
            assert (work.round, work.attempt) == (round_, 1)
            devices[name].submit(work, coordinator.model_bytes(1.0))
        until(lambda round_=round_: fleet.operator.run("run").round == round_)  # type: ignore[misc]
        assert list(fleet.operator.rounds("run")[-1].counted) == expected
