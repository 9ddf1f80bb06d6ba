"""Followers roll back with a run's holder when the newest global state is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from moonfed import transport
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.identity import load_identity
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import fleet_in
from tests.support.coordinator import Device, model_bytes
from tests.support.postgresql import Server

Until = Callable[[Callable[[], bool]], None]


def test_devices_of_a_follower_are_given_the_model_before_the_damaged_one(
    tmp_path: Path, postgresql_server: Server, bucket: str, until: Until
) -> None:
    shared = {"database": postgresql_server.new_database(), "blobs": bucket}
    with ExitStack() as stack:
        holder = stack.enter_context(fleet_in(tmp_path / "a", **shared))
        devices = [holder.device(name) for name in ("cam-1", "cam-2")]
        shutil.copytree(holder.state / "authority", tmp_path / "b" / "state" / "authority")
        follower = stack.enter_context(fleet_in(tmp_path / "b", **shared))
        identity = load_identity(tmp_path / "a" / "cam-2")
        there = stack.enter_context(transport.open_channel(f"127.0.0.1:{follower.ports.fleet}", identity))
        devices[1] = Device("cam-2", there)
        sessions = [device.connect() for device in devices]
        holder.start("run", rounds=3, minimum_devices=2, quorum=control_pb2.Amount(fraction=1.0))
        for round_ in (1, 2):
            for device, stream in zip(devices, sessions, strict=True):
                device.submit(stream.assignment(), model_bytes(float(round_)))
        works = [stream.assignment() for stream in sessions]
        newest = works[1].blobs["model"].sha256
        before = next(entry.model.sha256 for entry in holder.operator.rounds("run") if entry.round == 1)
        damaged = tmp_path / "damaged"
        damaged.write_bytes(model_bytes(9.0))
        ObjectClient(bucket).put(damaged, f"blobs/{newest[:2]}/{newest}")
        for fleet in (holder, follower):
            (fleet.state / "blobs" / "copies" / newest).unlink(missing_ok=True)
        for device, work in zip(devices, works, strict=True):
            device.submit(work, model_bytes(3.0))
        for device, stream in zip(devices, sessions, strict=True):
            again = stream.assignment()
            while (again.round, again.attempt) == (3, 1):
                again = stream.assignment()
            assert again.blobs["model"].sha256 == before
            device.submit(again, model_bytes(3.0))
        until(lambda: holder.operator.run("run").status == control_pb2.RUN_STATUS_FINISHED)
        assert [entry.attempt for entry in holder.operator.rounds("run")][:3] == [1, 1, 1]
