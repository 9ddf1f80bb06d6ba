"""Uploads are rejected before the disk is full, and the log warns in time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from moonfed.coordinator.storage import disk_budget
from moonfed.coordinator.storage.disk_budget import DiskBudget, used_bytes
from moonfed.errors import ResourceExhausted
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import fleet_in
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes


def test_uploads_are_rejected_while_the_budget_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle and an update are accepted again once something has been deleted."""
    monkeypatch.setattr(disk_budget, "MEASURED_SECONDS", 0.0)
    bundle, big = coordinator.make_bundle(), b"x" * 400_000
    with fleet_in(tmp_path, disk_budget=600_000) as fleet:
        device = fleet.device("cam-1")
        session = device.connect()
        fleet.start("run", bundle=bundle)
        work = session.assignment()
        filler = fleet.state / "filler"
        filler.write_bytes(big * 2)
        with pytest.raises(ResourceExhausted, match="the coordinator's disk budget of 600 KB leaves too little room"):
            device.submit(work, model_bytes(1.0))
        with pytest.raises(ResourceExhausted, match="disk budget"):
            fleet.start("two", bundle=coordinator.make_bundle(start=3.0))
        assert fleet.operator.run("run").open_round.rejected == [], "the update may come later"
        filler.unlink()
        ask(
            fleet.operator.control.PruneRun,
            control_pb2.PruneRunRequest(run="run", keep_last=1, keep_every=0),
        )
        device.submit(work, model_bytes(1.0))
        list(fleet.operator.watch("run"))
        assert fleet.operator.rounds("run")[0].counted == ["cam-1"]


def measured_each_time(root: Path) -> DiskBudget:
    return DiskBudget(root, 1000, clock=itertools.count(100.0, disk_budget.MEASURED_SECONDS).__next__)


def test_a_warning_comes_before_the_budget_is_reached(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    budget, file = measured_each_time(tmp_path), tmp_path / "a" / "file"
    file.parent.mkdir()
    for size, warnings in ((700, 0), (850, 1), (900, 1), (100, 1), (999, 2)):
        file.write_bytes(b"x" * size)
        budget.require(1)
        assert len(caplog.records) == warnings, size
    assert "uses 850 bytes" in caplog.text
    assert len(caplog.records) == 2


def test_rejected_uploads_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    budget, file = measured_each_time(tmp_path), tmp_path / "file"
    file.write_bytes(b"x" * 700)
    for size, message in ((301, 1), (302, 1), (300, 1), (301, 2)):
        if size == 300:
            budget.require(size)  # this much fits, so the next one that does not is news
        else:
            with pytest.raises(ResourceExhausted, match=f"700 bytes are in use, and {size} bytes more are needed"):
                budget.require(size)
        assert caplog.text.count("disk budget of 1 KB leaves too little room") == message
    file.write_bytes(b"x" * 1001)
    with pytest.raises(ResourceExhausted, match=r"disk budget of 1 KB leaves too little room: 1 KB are in use$"):
        budget.require(0)  # a run whose bundle is there already


def test_admitted_bytes_count_until_the_next_measurement(tmp_path: Path) -> None:
    now = [100.0]
    budget = DiskBudget(tmp_path, 1000, clock=lambda: now[0])
    budget.require(600)
    with pytest.raises(ResourceExhausted):
        budget.require(600)
    now[0] += 11.0  # nothing has come of it
    budget.require(600)
    DiskBudget(tmp_path, None).require(10**18)


def test_all_files_are_counted_once(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to(tmp_path / "0", target_is_directory=True)
    assert 300 <= used_bytes(tmp_path) < 300 + 200
    assert used_bytes(tmp_path / "nothing") == 0
