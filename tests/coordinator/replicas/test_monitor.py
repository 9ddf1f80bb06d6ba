"""Coordinators on one PostgreSQL database: each run has one holder; the others serve it without changing it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from moonfed.coordinator.replicas import monitor
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from tests.coordinator.conftest import fleet_in
from tests.support.coordinator import Device, model_bytes, model_values

pytestmark = pytest.mark.slow

Until = Callable[[Callable[[], bool]], None]


def test_a_whole_run_on_a_server(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "LEASE_SECONDS", 2.0)  # renewed in time, or nothing could be committed
    with fleet_in(tmp_path, database=url) as fleet:
        assert not (fleet.state / "coordinator.db").exists()
        device = fleet.device("cam-1")
        session = device.connect()
        fleet.start("run", rounds=3)
        for _ in range(3):
            device.submit(session.assignment(), model_bytes(2.0))
            time.sleep(0.8)
        ended = list(fleet.operator.watch("run"))[-1].run
        assert ended.status == "finished"
        assert [list(entry.counted) for entry in fleet.operator.rounds("run")] == [["cam-1"]] * 3


def test_a_killed_coordinators_round_resumes(tmp_path: Path, url: str) -> None:
    with fleet_in(tmp_path, database=url) as fleet:
        devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
        sessions = [device.connect() for device in devices]
        fleet.start("run", minimum_devices=2)
        for stream in sessions:
            work = stream.assignment()
        devices[0].submit(work, model_bytes(1.0))
    with fleet_in(tmp_path, database=url) as again:
        device = again.device("cam-3")
        assert again.operator.run("run").open_round.reported == ["cam-1"]
        del device


def test_another_coordinator_resumes_a_round_with_the_updates_received_by_the_first(
    tmp_path: Path, url: str, bucket: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "LEASE_SECONDS", 10.0)
    shared = {"database": url, "blobs": bucket}
    with ExitStack() as stack:
        with fleet_in(tmp_path / "a", **shared) as first:
            devices = [first.device(name) for name in ("cam-1", "cam-2")]
            sessions = [device.connect() for device in devices]
            first.start("run", minimum_devices=2)
            works = [stream.assignment() for stream in sessions]
            shutil.copytree(first.state / "authority", tmp_path / "b" / "state" / "authority")
            second = stack.enter_context(fleet_in(tmp_path / "b", **shared))
            until(lambda: second.operator.run("run").open_round.round == 1)
            devices[0].submit(works[0], model_bytes(1.0), samples=10)
        identity = load_identity(tmp_path / "a" / "cam-2")
        channel = stack.enter_context(transport.open_channel(f"127.0.0.1:{second.ports.fleet}", identity))
        device = Device("cam-2", channel)
        work = device.connect().assignment()
        assert (work.round, work.attempt) == (1, 1), "the same attempt goes on"
        device.submit(work, model_bytes(4.0), samples=30)
        until(lambda: second.operator.run("run").status == "finished")
        ended = second.operator.run("run")
        (only,) = second.operator.rounds("run")
        assert only.counted == ["cam-1", "cam-2"]
        found = model_values(second.operator.model(ended.model))
        np.testing.assert_array_equal(found, np.float32((10 * 1.0 + 30 * 4.0) / 40))
        assert not list(ObjectClient(bucket).listed("spool/")), "nothing of the round is left"
