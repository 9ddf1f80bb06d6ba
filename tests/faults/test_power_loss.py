"""A power loss right after an acknowledgement: the data synced by then cover all acknowledged updates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moonfed.blobs.compression import zstd
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from tests.coordinator.conftest import Fleet, fleet_in
from tests.faults.power import Disk
from tests.support import coordinator
from tests.support.coordinator import Device, model_bytes, model_values

pytestmark = pytest.mark.slow

ZSTD = "float32+zstd"  # its updates are decoded before they are acknowledged
MEAN = coordinator.weighted({3.0: 30, 7.0: 10})  # of what the two devices hand in for round 2


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    yield made
    made.close()


def device_of(fleet: Fleet, name: str) -> Device:
    """Connect a device that enrolled before the power failed to the present coordinator."""
    identity = load_identity(fleet.tmp.with_name("before") / name)
    return Device(name, fleet.stack.enter_context(transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", identity)))


def finish_run(directory: Path, encoding: str, reported: dict[int, list[str]]) -> None:
    """Start a coordinator on the surviving state, submit these devices' updates by round, and finish the run."""
    with fleet_in(directory) as fleet:
        open_round = fleet.operator.run("r").open_round
        assert {open_round.round: list(open_round.reported)} == reported
        devices = {name: device_of(fleet, name) for name in ("cam-1", "cam-2")}
        sessions = {name: device.connect(encodings=[ZSTD]) for name, device in devices.items()}
        for round_ in range(max(1, *reported), 3):
            for name, samples, value in (("cam-1", 30, 3.0), ("cam-2", 10, 7.0)):
                if name not in reported.get(round_, ()):
                    work = sessions[name].assignment()
                    assert work.round == round_
                    devices[name].submit(work, content(value, encoding), samples=samples, encoding=encoding)
        ended = list(fleet.operator.watch("r"))[-1].run
        assert ended.status == "finished"
        assert set(model_values(fleet.operator.model(ended.model)).tolist()) == {MEAN}
        assert [list(entry.counted) for entry in fleet.operator.rounds("r")] == [["cam-1", "cam-2"]] * 2


def content(value: float, encoding: str) -> bytes:
    """Return a model file as a device sends it."""
    return zstd.compress(model_bytes(value)) if encoding == ZSTD else model_bytes(value)


@pytest.mark.parametrize("encoding", ["float32", ZSTD])
def test_acknowledged_updates_survive_a_power_loss(tmp_path: Path, disk: Disk, encoding: str) -> None:
    before = tmp_path / "before"
    before.mkdir()
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_in(before))
        fleet.start("r", rounds=2, minimum_devices=2, quorum=2, uplink_encoding=encoding)
        one, two = fleet.device("cam-1"), fleet.device("cam-2")
        disk.survivors(before, tmp_path / "started")
        sessions = [device.connect(encodings=[ZSTD]) for device in (one, two)]
        one.submit(sessions[0].assignment(), content(1.0, encoding), samples=30, encoding=encoding)
        disk.survivors(before, tmp_path / "acknowledged")
        two.submit(sessions[1].assignment(), content(5.0, encoding), samples=10, encoding=encoding)
        work = sessions[0].assignment()
        disk.survivors(before, tmp_path / "committed")
        one.submit(work, content(3.0, encoding), samples=30, encoding=encoding)
        disk.survivors(before, tmp_path / "later")
    finish_run(tmp_path / "started", encoding, {0: []})
    finish_run(tmp_path / "acknowledged", encoding, {1: ["cam-1"]})
    finish_run(tmp_path / "committed", encoding, {2: []})
    finish_run(tmp_path / "later", encoding, {2: ["cam-1"]})
