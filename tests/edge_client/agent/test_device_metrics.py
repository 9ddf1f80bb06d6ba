from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.edge_client.agent.device_metrics import DeviceMetrics
from tests.support.sysfs import jetson

LONG = 1000.0


def until(condition: Callable[[], bool]) -> None:
    while not condition():  # the test's own time limit ends a wait that lasts too long
        time.sleep(0.01)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "textfile").mkdir()
    return tmp_path / "textfile" / "moonfed.prom"


def test_the_file_follows_rounds_connection_and_board(path: Path, tmp_path: Path) -> None:
    online = threading.Event()
    metrics = DeviceMetrics(path, sysfs=jetson(tmp_path / "sys"), write_seconds=LONG)
    metrics.start(online.is_set)
    until(lambda: "moonfed_device_connected 0" in lines(path))
    online.set()
    metrics.refresh()
    until(lambda: "moonfed_device_connected 1" in lines(path))
    metrics.round_ended("counted", 4, 1.5, 0.25)
    metrics.round_ended("late", 5, 9.0, 0.125)
    until(lambda: 'moonfed_device_rounds_total{outcome="late"} 1' in lines(path))
    found = lines(path)
    assert 'moonfed_device_rounds_total{outcome="counted"} 1' in found
    assert "moonfed_device_last_round 4" in found  # the late one did not count
    assert "moonfed_device_last_round_seconds 1.5" in found
    assert "moonfed_device_last_round_loss 0.25" in found
    assert 'moonfed_device_power_watts{name="VDD_GPU_SOC",sensor="hwmon3/1"} 9.5' in found
    metrics.stop()
    assert "moonfed_device_connected 0" in lines(path)
    metrics.start(online.is_set)  # for the session under another name
    until(lambda: "moonfed_device_connected 1" in lines(path))
    metrics.stop()


def test_the_file_is_written_regularly(path: Path, tmp_path: Path) -> None:
    metrics = DeviceMetrics(path, sysfs=tmp_path, write_seconds=0.01)
    metrics.start(lambda: True)
    until(path.exists)
    path.unlink()
    until(path.exists)
    metrics.stop()
    assert "metrics" not in [thread.name for thread in threading.enumerate()]


def test_the_file_is_replaced_at_once_and_readable_by_others(path: Path, tmp_path: Path) -> None:
    metrics = DeviceMetrics(path, sysfs=tmp_path, write_seconds=LONG)
    metrics.write()
    with path.open() as before:
        metrics.write()
        assert before.read().endswith("\n")  # the former file is whole
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_directory_that_cannot_be_written_is_reported_once(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = DeviceMetrics(path, sysfs=tmp_path, write_seconds=LONG)
    path.parent.rmdir()
    for _ in range(3):
        metrics.write()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"cannot write the metrics file {path}"
    ]
    path.parent.mkdir()
    metrics.write()
    assert path.exists()
