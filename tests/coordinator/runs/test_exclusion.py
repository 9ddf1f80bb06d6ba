"""Devices that are clipped in several rounds in a row are named, and left out if the run says so, over real TLS."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.control.codec import from_message
from moonfed.control.runs import Round, Run
from moonfed.coordinator.cli.format_run import run_lines
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import Device, DeviceSession, ask, model_bytes, model_values
from tests.support.postgresql import Server

NAMES = tuple(f"cam-{number}" for number in range(5))
HONEST, ATTACKER = NAMES[:-1], NAMES[-1]
CLIPPING = {"weight_cap": 1.5, "clip_factor": 1.0}
FAR, NEAR = 1000.0, 1.0  # changes of the model
REASON = "its update was clipped in 2 rounds in a row"
Until = Callable[[Callable[[], bool]], None]


@dataclass
class Devices:
    """Five devices on the raw wire, connected to one coordinator."""

    fleet: Fleet
    stack: ExitStack
    until: Until
    devices: dict[str, Device] = field(default_factory=dict)
    sessions: dict[str, DeviceSession] = field(default_factory=dict)

    def connect(self, fleet: Fleet, *names: str) -> None:
        """Connect devices that are enrolled, or are now."""
        for name in names:
            if not (self.fleet.tmp / name).exists():
                self.fleet.device(name)
            identity = load_identity(self.fleet.tmp / name)
            channel = transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", identity)
            self.devices[name] = Device(name, self.stack.enter_context(channel))
            self.sessions[name] = self.devices[name].connect()

    def start(self, **fields: Any) -> None:
        self.fleet.start(**{"rounds": 4, "minimum_devices": 4, **CLIPPING, "exclude_after": 2, **fields})

    def run(self) -> control_pb2.Run:
        return self.fleet.operator.run("run")

    def play(self, round_: int, changes: Mapping[str, float], declining: str = "") -> list[str]:
        """Play a round; its devices change the model by NEAR unless the change is given. Return their names."""
        self.until(lambda: self.run().open_round.round == round_)
        cohort = list(self.run().open_round.cohort)
        for name in cohort:
            work = self.sessions[name].assignment()
            while work.round != round_:  # assigned again to a device that reconnected
                work = self.sessions[name].assignment()
            if name == declining:
                self.decline(name, work)
                continue
            begun = model_values(self.fleet.operator.model(work.blobs["model"]))
            self.devices[name].submit(work, model_bytes(begun + np.float32(changes.get(name, NEAR))))
        self.until(lambda: self.run().round == round_)
        return cohort

    def decline(self, name: str, work: fleet_pb2.Assignment) -> None:
        request = fleet_pb2.DeclineRequest(
            device=name, run=work.run, round=work.round, attempt=work.attempt, reason="busy"
        )
        ask(self.devices[name].fleet.Decline, request)


@pytest.fixture
def devices(fleet: Fleet, until: Until) -> Devices:
    found = Devices(fleet, fleet.stack, until)
    found.connect(fleet, *NAMES)
    return found


def ineligible(run: control_pb2.Run) -> dict[str, list[str]]:
    return {group.reason: list(group.devices) for group in run.ineligible}


def test_a_device_that_is_clipped_twice_in_a_row_takes_part_in_no_further_round(devices: Devices) -> None:
    devices.start()
    cohorts = [devices.play(round_, {ATTACKER: FAR}) for round_ in (1, 2, 3)]
    assert ineligible(devices.run()) == {REASON: [ATTACKER]}
    cohorts.append(devices.play(4, {ATTACKER: FAR}))
    assert cohorts == [list(NAMES), list(NAMES), list(HONEST), list(HONEST)]
    run, rounds = devices.run(), devices.fleet.operator.rounds("run")
    told = [[incident.description for incident in round_.incidents] for round_ in rounds]
    assert [len(descriptions) for descriptions in told] == [2, 3, 0, 0], "parameters, statistics, and the exclusion"
    assert told[1][-1] == f"it takes part in no further round: {REASON}"
    shown, ended = from_message(Run, run), [from_message(Round, one) for one in rounds]
    assert shown.clipped == {ATTACKER: 2}
    assert f"clipped in their last rounds: {ATTACKER} (2)" in run_lines(shown, None, ended)
    assert np.abs(model_values(devices.fleet.operator.model(run.model))).max() <= 4 * NEAR + 1e-5


def test_without_the_option_a_clipped_device_is_named_and_takes_part(devices: Devices) -> None:
    devices.start(exclude_after=0, rounds=3)
    assert [devices.play(round_, {ATTACKER: FAR}) for round_ in (1, 2, 3)] == [list(NAMES)] * 3
    assert devices.run().clipped == {ATTACKER: 3}
    assert not devices.run().ineligible


def test_only_clips_in_a_row_exclude(devices: Devices) -> None:
    """A device that is within the usual once more starts anew; one that is clipped a little is not reported."""
    devices.start(rounds=4)
    odd = [{ATTACKER: FAR, "cam-0": 2.5 * NEAR}, {"cam-0": 2.5 * NEAR}, {ATTACKER: FAR, "cam-0": 2.5 * NEAR}, {}]
    assert [devices.play(round_, changes) for round_, changes in enumerate(odd, 1)] == [list(NAMES)] * 4
    assert not devices.run().clipped
    clipped = [{incident.device for incident in round_.incidents} for round_ in devices.fleet.operator.rounds("run")]
    assert clipped == [{ATTACKER}, set(), {ATTACKER}, set()]


def test_a_round_without_the_device_does_not_interrupt_its_row(devices: Devices) -> None:
    devices.start(rounds=4)
    assert devices.play(1, {ATTACKER: FAR}) == list(NAMES)
    assert devices.play(2, {}, declining=ATTACKER) == list(NAMES)
    assert devices.play(3, {ATTACKER: FAR}) == list(NAMES)
    assert devices.play(4, {}) == list(HONEST)


def test_an_exclusion_survives_a_restart(tmp_path: Path, until: Until) -> None:
    """A row that had begun before a restart continues, and an exclusion stays."""
    for number, (rounds, expected) in enumerate((((1,), NAMES), ((2,), NAMES), ((3,), HONEST))):
        with fleet_in(tmp_path) as fleet, ExitStack() as stack:
            devices = Devices(fleet, stack, until)
            devices.connect(fleet, *NAMES)
            if number == 0:
                devices.start()
            for round_ in rounds:
                assert devices.play(round_, {ATTACKER: FAR}) == list(expected)
    with fleet_in(tmp_path) as fleet, ExitStack() as stack:
        devices = Devices(fleet, stack, until)
        devices.connect(fleet, *NAMES)
        until(lambda: ineligible(devices.run()) == {REASON: [ATTACKER]})
        assert devices.play(4, {}) == list(HONEST)


def test_an_asynchronous_run_leaves_a_clipped_device_out_of_its_buffer(devices: Devices) -> None:
    devices.start(asynchronous=5, max_staleness=5, quorum=4,
                  deadline=1.5, minimum_devices=5, rounds=3)  # fmt: skip
    for round_ in (1, 2):
        assert devices.play(round_, {ATTACKER: FAR}) == list(NAMES)
    assert devices.play(3, {}) == list(HONEST)


def test_a_follower_shows_the_exclusion_and_the_next_holder_keeps_it(
    tmp_path: Path, postgresql_server: Server, bucket: str, until: Until
) -> None:
    shared = {"database": postgresql_server.new_database(), "blobs": bucket}
    with ExitStack() as stack:
        before = stack.enter_context(ExitStack())
        holder = before.enter_context(fleet_in(tmp_path / "a", **shared))
        devices = Devices(holder, before, until)
        devices.connect(holder, *NAMES)
        shutil.copytree(holder.state / "authority", tmp_path / "b" / "state" / "authority")
        follower = stack.enter_context(fleet_in(tmp_path / "b", **shared))
        devices.start()
        for round_ in (1, 2):
            assert devices.play(round_, {ATTACKER: FAR}) == list(NAMES)
        until(lambda: ineligible(follower.operator.run("run")) == {REASON: [ATTACKER]})
        assert follower.operator.run("run").clipped == {ATTACKER: 2}
        before.close()
        devices.fleet, devices.stack = follower, stack
        for name in NAMES:
            shutil.copytree(tmp_path / "a" / name, tmp_path / "b" / name)
        devices.connect(follower, *NAMES)
        assert devices.play(3, {}) == list(HONEST)
