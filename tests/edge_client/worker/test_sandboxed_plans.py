"""Honest plans in the sandbox, and the processes that run them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec, parts_of
from moonfed.bundle.target import class_target
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.methods import METHODS
from moonfed.fleet.assignment import AttemptId
from tests.edge_client.conftest import SANDBOX, Bundle, Device, write_samples
from tests.support.compiled import device_bundle
from tests.support.device_coordinator import Coordinator
from tools.generate_operators import NETWORKS

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("fresh_programs")
def test_no_program_of_a_device_imports_from_its_working_directory(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    """An earlier version let a plan write a module there, which the next process imported."""
    marker = tmp_path / "imported"
    for name in ("queue", "json", "socket", "numpy", "torch", "moonfed", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    coordinator.assign(bundle.assignment())
    device.start(samples)
    coordinator.wait_for_update()
    assert not marker.exists()


@pytest.fixture
def new_device(tmp_path: Path) -> Iterator[Callable[[Path], WorkerProcess]]:
    made: list[WorkerProcess] = []

    def make(data: Path) -> WorkerProcess:
        settings = WorkerSettings(
            state=str(tmp_path / "state"),
            device="cam-1",
            data=str(data),
            accelerator="cpu",
            holdout=0.2,
            threads=1,
            sandbox=SANDBOX,
        )
        made.append(WorkerProcess(settings))
        return made[-1]

    yield make
    for device in made:
        device.end()


CASES = [("mlp", InputSpec(kind="features", shape=(8,)), method) for method in METHODS] + [
    (model, sample, "moon") for model, sample in NETWORKS
]


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(("model", "sample", "method"), CASES, ids=[f"{case[0]}, {case[2]}" for case in CASES])
def test_honest_plans_train_in_the_sandbox(
    model: str, sample: InputSpec, method: str, new_device: Callable[[Path], WorkerProcess], tmp_path: Path
) -> None:
    bundle = device_bundle(
        BundleRecipe(name="honest", model=model, input=sample, target=class_target(("a", "b")), method=method)
    )
    blobs = BlobDirectory(tmp_path / "blobs")
    files = {name: str(blobs.path(blobs.put_bytes(content).sha256)) for name, content in bundle.contents.items()}
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (20, *sample.shape)).astype(sample.dtype)
    np.savez(tmp_path / "data.npz", inputs=inputs, labels=np.arange(20) % 2)
    device = new_device(tmp_path / "data.npz")
    for number in (1, 2):  # the second with previous models and device state
        job = Job(
            id=AttemptId(run="honest", round=number, attempt=1),
            seed=1,
            digest="0" * 64,
            counted=AttemptId(run="honest", round=number - 1, attempt=1) if number > 1 else None,
            training=replace(bundle.manifest.training, epochs=1, batch_size=8),
            manifest_file=files[MANIFEST_FILE],
            plan_file=files[PLAN_FILE],
            files={"model": files[WEIGHTS_FILE]},
            parts={name: files[name] for name in parts_of(bundle.manifest)},
        )
        assert device.train(job, lambda _: True)
    rounds = sorted(path.name for path in (tmp_path / "state" / "runs" / "honest").iterdir())
    assert rounds[-1] == "2-1"


@pytest.mark.usefixtures("forked_programs")
def test_another_plan_gets_another_process_and_the_same_plan_the_same(
    new_device: Callable[[Path], WorkerProcess], new_job: Callable[..., Job], tmp_path: Path
) -> None:
    device = new_device(write_samples(tmp_path / "samples.npz"))

    def trainer_after(job: Job) -> int | None:
        assert device.train(job, lambda _: True)
        assert device._trainer
        return device._trainer.pid

    first = trainer_after(new_job())
    output = tmp_path / "state" / "job" / "out"
    held = os.open(output, os.O_RDONLY)  # its inode number is not used again meanwhile
    assert trainer_after(new_job(run="other")) == first
    copy = tmp_path / "copy.json"
    copy.write_bytes(Path(new_job().manifest_file).read_bytes())
    assert trainer_after(new_job(run="third", manifest_file=str(copy))) != first
    assert first is not None
    assert not psutil.pid_exists(first)
    assert not os.path.samestat(os.fstat(held), output.stat()), "the first plan's sandbox may write to it"
    os.close(held)
