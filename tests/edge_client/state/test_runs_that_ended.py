"""Runs that have ended: the files that a device deletes."""

from __future__ import annotations

from pathlib import Path

from moonfed.v1 import fleet_pb2
from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator

LONG = 10_000_000  # epochs that no test waits for


def ended(run: str = "tested") -> fleet_pb2.RunEnded:
    """The end of a run."""
    return fleet_pb2.RunEnded(run=run)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def train_once(coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, *options: str) -> None:
    coordinator.assign(bundle.assignment())
    device.start(samples, *options)
    coordinator.wait_for_update()
    device.wait_for_log("submitted")


def test_a_run_that_has_ended_leaves_nothing(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    train_once(coordinator, device, bundle, samples)
    assert files(device.state / "runs")
    assert files(device.state / "blobs")
    coordinator.assign(ended())
    device.wait_for_log("run tested has ended")
    device.stop()
    assert not list((device.state / "runs").iterdir())
    assert not files(device.state / "blobs")
    assert not files(device.state / "models")
    assert not (device.state / "repository").exists()


def test_a_device_names_the_runs_it_keeps_and_learns_which_have_ended(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    train_once(coordinator, device, bundle, samples)
    device.stop()
    assert list(coordinator.connect_requests[0].runs) == []
    coordinator.over["tested"] = ended()
    device.start(samples)
    device.wait_for_log("run tested has ended")
    device.stop()
    assert list(coordinator.connect_requests[1].runs) == ["tested"]
    device.start(samples)
    coordinator.wait_for(lambda: len(coordinator.connect_requests) > 2, "the device")
    device.stop()
    assert list(coordinator.connect_requests[2].runs) == []


def test_a_run_that_ends_stops_its_training_first(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    train_once(coordinator, device, bundle, samples)
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment(round=2))
    coordinator.wait_for(lambda: coordinator.reports and coordinator.reports[-1].round == 2, "training")
    coordinator.assign(ended())
    device.wait_for_log("run tested has ended")
    log = device.stop()[1]
    assert log.index("run tested, round 2: dropped") < log.index("run tested has ended;")
    assert not list((device.state / "runs").iterdir())


def test_an_invalid_message_about_an_ended_run_removes_nothing(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    train_once(coordinator, device, bundle, samples)
    (tmp_path / "precious").mkdir()
    coordinator.assign(fleet_pb2.RunEnded(run="../../precious"))
    device.wait_for_log("run is '../../precious'")
    assert (tmp_path / "precious").is_dir()
    assert files(device.state / "runs")
