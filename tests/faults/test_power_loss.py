"""A power loss right after an acknowledgement: what was fsynced by then is enough for all that was acknowledged."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from moonfed import transport
from moonfed.identity import load_identity
from moonfed.v1 import control_pb2
from tests.coordinator import support
from tests.coordinator.conftest import Fleet, fleet_in
from tests.coordinator.support import Device, model_bytes, model_values
from tests.faults.power import Disk

MEAN = support.weighted({3.0: 30, 7.0: 10})  # of what the two devices hand in for round 2


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    return made


def device_of(fleet: Fleet, name: str) -> Device:
    """A device that enrolled before the power failed, at the coordinator that is there now."""
    identity = load_identity(fleet.tmp.with_name("before") / name)
    return Device(name, fleet.stack.enter_context(transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", identity)))


def goes_on(directory: Path, reported: dict[int, list[str]]) -> None:
    """A coordinator starts on what survived, has these devices' updates, by round, and brings the run to its end."""
    with fleet_in(directory) as fleet:
        open_round = fleet.operator.run("r").open_round
        assert {open_round.round: list(open_round.reported)} == reported
        devices = {name: device_of(fleet, name) for name in ("cam-1", "cam-2")}
        attending = {name: device.attend() for name, device in devices.items()}
        for round_ in range(max(1, *reported), 3):
            for name, samples, value in (("cam-1", 30, 3.0), ("cam-2", 10, 7.0)):
                if name not in reported.get(round_, ()):
                    work = attending[name].assignment()
                    assert work.round == round_
                    devices[name].submit(work, model_bytes(value), samples=samples)
        ended = list(fleet.operator.watch("r"))[-1].run
        assert ended.status == control_pb2.RUN_STATUS_FINISHED
        assert set(model_values(fleet.operator.model(ended.model)).tolist()) == {MEAN}
        assert [list(entry.counted) for entry in fleet.operator.rounds("r")] == [["cam-1", "cam-2"]] * 2


def test_what_was_acknowledged_survives_a_power_loss(tmp_path: Path, disk: Disk) -> None:
    before = tmp_path / "before"
    before.mkdir()
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_in(before))
        fleet.start("r", rounds=2, minimum_devices=2, quorum=control_pb2.Amount(count=2))
        one, two = fleet.device("cam-1"), fleet.device("cam-2")
        disk.survivors(before, tmp_path / "started")
        attending = [device.attend() for device in (one, two)]
        one.submit(attending[0].assignment(), model_bytes(1.0), samples=30)
        disk.survivors(before, tmp_path / "acknowledged")
        two.submit(attending[1].assignment(), model_bytes(5.0), samples=10)
        work = attending[0].assignment()
        disk.survivors(before, tmp_path / "committed")
        one.submit(work, model_bytes(3.0), samples=30)
        disk.survivors(before, tmp_path / "later")
    goes_on(tmp_path / "started", {0: []})
    goes_on(tmp_path / "acknowledged", {1: ["cam-1"]})
    goes_on(tmp_path / "committed", {2: []})
    goes_on(tmp_path / "later", {2: ["cam-1"]})
