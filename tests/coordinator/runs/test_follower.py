"""Followed runs: local devices participate, nothing is changed, and the holder's rollbacks are followed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from moonfed.coordinator.replicas import monitor
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.db import postgres
from moonfed.coordinator.storage.leases import SharedLeases
from moonfed.errors import Unavailable
from moonfed.fleet.class_bits import pack_classes
from moonfed.transport import client as transport
from moonfed.transport.grpc_status import from_rpc_error
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import fleet_in
from tests.support.coordinator import Device, ask, model_bytes
from tests.support.postgresql import Server

pytestmark = pytest.mark.slow

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
        holder.start("run", rounds=3, minimum_devices=2, quorum="all")
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
        until(lambda: holder.operator.run("run").status == "finished")
        assert [entry.attempt for entry in holder.operator.rounds("run")][:3] == [1, 1, 1]


def test_a_run_of_another_coordinator_is_served_and_not_changed(
    tmp_path: Path, url: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "LEASE_SECONDS", 2.0)
    first = postgres.open_store(url, used_before=False)
    with fleet_in(tmp_path, database=url) as fleet:
        fleet.start("run")
        assert isinstance(first.leases, SharedLeases)
        first.leases.holder = "another coordinator"
        with first._transactions.write() as connection:
            connection.exec_driver_sql("UPDATE leases SET holder = 'another coordinator', expires = expires + 3600")
        log = fleet.operator.watch("run")
        with pytest.raises(Unavailable, match="'run' is changing hands between coordinators"):
            list(with_our_errors(log))
        session = fleet.device("cam-1").connect()
        time.sleep(3 * monitor.POLL_SECONDS)
        assert session.replies.empty()
        assert fleet.operator.run("run").status == "running"
        first.leases.release()  # the other one has ended
        assert session.assignment().run == "run"
    first.close()


def with_our_errors(events: Iterator[control_pb2.RunEvent]) -> Iterator[control_pb2.RunEvent]:
    try:
        yield from events
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


def test_a_device_of_a_follower_answers_there_and_the_holder_selects_it(
    tmp_path: Path, postgresql_server: Server, bucket: str, until: Until
) -> None:
    """A permanent decline at the follower, and the answers when the device moves, are known to both."""
    shared = {"database": postgresql_server.new_database(), "blobs": bucket}
    with ExitStack() as stack:
        holder = stack.enter_context(fleet_in(tmp_path / "a", **shared))
        devices = [holder.device(name) for name in ("cam-1", "cam-2")]
        shutil.copytree(holder.state / "authority", tmp_path / "b" / "state" / "authority")
        follower = stack.enter_context(fleet_in(tmp_path / "b", **shared))
        identity = load_identity(tmp_path / "a" / "cam-2")
        there = stack.enter_context(transport.open_channel(f"127.0.0.1:{follower.ports.fleet}", identity))
        away = Device("cam-2", there)
        session = away.connect(fingerprint="a")
        until(lambda: sum(device.online for device in holder.operator.devices()) == 1)
        holder.start("run", rounds=2)
        away.answer(session.check(), "a", classes=pack_classes([0, 1], 3))
        work = session.assignment()
        assert holder.operator.run("run").open_round.cohort == ["cam-2"]
        assert [list(one.operator.run("run").absent_classes) for one in (holder, follower)] == [["c"], ["c"]]
        decline = fleet_pb2.DeclineRequest(device="cam-2", run="run", round=work.round, attempt=work.attempt,
                                           permanent=True, reason="unsafe")  # fmt: skip
        ask(away.fleet.Decline, decline)
        until(lambda: "not eligible: cam-2 (unsafe)" in holder.operator.run("run").waiting)
        until(lambda: [list(group.devices) for group in follower.operator.run("run").ineligible] == [["cam-2"]])
        session.leave()
        moved = devices[1].connect(fingerprint="a")
        stream = devices[0].connect(fingerprint="b")
        devices[0].answer(stream.check(), "b")
        assert stream.assignment().attempt == 2
        assert holder.operator.run("run").open_round.cohort == ["cam-1"]
        assert moved.replies.empty()
