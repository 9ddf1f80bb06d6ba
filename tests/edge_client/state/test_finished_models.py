"""Runs that have ended: the files that a device deletes, and the model that it keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moonfed.blobs import BlobRef, ref_of_bytes
from moonfed.edge_client.state.finished_models import (
    FINISHED_KEPT,
    Finished,
    find_finished,
    finished_models,
    remove_partial_models,
    store_finished,
)
from moonfed.errors import Corrupt, NotFound
from moonfed.signing.bundle_signature import signed_by
from moonfed.transport import to_message
from moonfed.v1 import fleet_pb2
from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.signatures import TRUST

LONG = 10_000_000  # epochs that no test waits for


def ended(
    bundle: Bundle | None = None, model: bytes = b"", *, run: str = "tested", rounds: int = 2
) -> fleet_pb2.RunEnded:
    """A run that finished with that model; without a bundle, one that was stopped."""
    if bundle is None:
        return fleet_pb2.RunEnded(run=run)
    manifest = ref_of_bytes(bundle.manifest.to_bytes())
    return fleet_pb2.RunEnded(
        run=run,
        manifest=to_message(manifest),
        model=to_message(ref_of_bytes(model)),
        rounds=rounds,
        signature=to_message(ref_of_bytes(bundle.signature)),
    )


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def train_once(coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, *options: str) -> bytes:
    coordinator.assign(bundle.assignment())
    device.start(samples, *options)
    _, model = coordinator.wait_for_update()
    device.wait_for_log("submitted")
    coordinator.blobs.put_bytes(model)
    return model


def test_a_finished_run_leaves_its_model_and_nothing_else(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    model = train_once(coordinator, device, bundle, samples)
    fetched = len(coordinator.fetched)
    coordinator.assign(ended(bundle, model))
    device.wait_for_log("run tested has ended; stored its model for predictions")
    coordinator.assign(bundle.assignment(run="next"))
    coordinator.wait_for_update(2)  # the device goes on, and what it needs again is fetched again
    found = find_finished(device.state / "finished")
    assert (found.run, found.rounds) == ("tested", 2)
    assert found.read_manifest(signed_by(TRUST)) == bundle.manifest
    assert found.plan_file.read_bytes() == bundle.plan
    assert found.model_file.read_bytes() == model
    assert not (device.state / "runs" / "tested").exists()
    assert coordinator.fetched[fetched][0] == ref_of_bytes(model).sha256  # the others were here already


def test_a_stopped_run_leaves_nothing(coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path) -> None:
    train_once(coordinator, device, bundle, samples)
    assert files(device.state / "runs")
    assert files(device.state / "blobs")
    coordinator.assign(ended())
    device.wait_for_log("run tested has ended; deleted its files")
    device.stop()
    assert not list((device.state / "runs").iterdir())
    assert not files(device.state / "blobs")
    assert not files(device.state / "models")
    assert not (device.state / "finished").exists()


def test_a_device_names_the_runs_it_keeps_and_learns_which_have_ended(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    model = train_once(coordinator, device, bundle, samples)
    device.stop()
    assert list(coordinator.connect_requests[0].runs) == []
    coordinator.over["tested"] = ended(bundle, model)
    device.start(samples)
    device.wait_for_log("run tested has ended; stored its model for predictions")
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
    device.wait_for_log("run tested has ended; deleted its files")
    log = device.stop()[1]
    assert log.index("run tested, round 2: dropped") < log.index("run tested has ended;")
    assert not list((device.state / "runs").iterdir())


def test_an_unavailable_model_affects_nothing_else(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    train_once(coordinator, device, bundle, samples)
    coordinator.assign(ended(bundle, b"nobody has it"))
    device.wait_for_log("run tested has ended; its model cannot be stored: ")
    coordinator.assign(bundle.assignment(run="next"))
    coordinator.wait_for_update(2)
    assert not finished_models(device.state / "finished")
    assert not (device.state / "runs" / "tested").exists()


def test_an_invalid_message_about_an_ended_run_removes_nothing(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    train_once(coordinator, device, bundle, samples)
    (tmp_path / "precious").mkdir()
    coordinator.assign(fleet_pb2.RunEnded(run="../../precious"))
    device.wait_for_log("run is '../../precious'; it must be 1 to 128 letters")
    nonsense = ended(bundle, b"x")
    nonsense.model.sha256 = "../../etc/passwd"
    coordinator.assign(nonsense)
    device.wait_for_log("an ended run is invalid and ignored: sha256 is")
    assert (tmp_path / "precious").is_dir()
    assert files(device.state / "runs")


# What follows is without processes: directories.


def keep(root: Path, bundle: Bundle, run: str, model: bytes = b"weights", when: int = 0) -> Finished:
    sources = root.parent / "sources"
    sources.mkdir(exist_ok=True)
    contents = {
        "signature.json": bundle.signature,
        "manifest.json": bundle.manifest.to_bytes(),
        "plan.pt": bundle.plan,
        "model.safetensors": model,
    }
    for name, content in contents.items():
        (sources / name).unlink(missing_ok=True)
        (sources / name).write_bytes(content)
    kept = store_finished(
        *(root, run, 3),
        manifest=ref_of_bytes(contents["manifest.json"]),
        model=ref_of_bytes(model),
        files={name: sources / name for name in contents},
    )
    if when:
        os.utime(kept.directory / "finished.json", (when, when))
    return kept


def test_the_newest_finished_models_stay(tmp_path: Path, bundle: Bundle) -> None:
    root = tmp_path / "finished"
    for when, run in enumerate("abcd", start=1):
        keep(root, bundle, run, when=when)
    assert [found.run for found in finished_models(root)] == ["d", "c"]
    assert FINISHED_KEPT == len(list(root.iterdir())) == 2
    keep(root, bundle, "c", b"trained further")
    assert find_finished(root).run == "c"
    assert find_finished(root).model_file.read_bytes() == b"trained further"
    assert find_finished(root, "d").run == "d"


def test_a_missing_model_is_named(tmp_path: Path, bundle: Bundle) -> None:
    root = tmp_path / "finished"
    with pytest.raises(NotFound, match="holds no finished model yet"):
        find_finished(root)
    keep(root, bundle, "a")
    with pytest.raises(NotFound, match="holds no finished model of 'b'; it holds a"):
        find_finished(root, "b")


@pytest.mark.parametrize("name", ["manifest.json", "plan.pt", "model.safetensors"])
def test_a_damaged_file_is_known(name: str, tmp_path: Path, bundle: Bundle) -> None:
    kept = keep(tmp_path / "finished", bundle, "a")
    kept.read_manifest(signed_by(TRUST))
    (kept.directory / name).write_bytes(b"damaged")
    with pytest.raises(Corrupt, match=f"{name} differs from what was fetched"):
        kept.read_manifest(signed_by(TRUST))


def test_a_finished_model_appears_whole_or_not_at_all(tmp_path: Path, bundle: Bundle) -> None:
    root = tmp_path / "finished"
    with pytest.raises(FileNotFoundError):
        store_finished(
            *(root, "a", 1),
            manifest=BlobRef("0" * 64, 1),
            model=BlobRef("0" * 64, 1),
            files={"plan.pt": tmp_path / "nowhere"},
        )
    assert list(root.iterdir()) == []
    (root / ".a.123").mkdir()  # killed while it wrote
    (root / ".a.123" / "finished.json").write_text("{}")
    assert finished_models(root) == []
    remove_partial_models(root)
    assert list(root.iterdir()) == []
