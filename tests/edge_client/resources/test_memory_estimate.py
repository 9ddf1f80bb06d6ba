"""Memory of a round, estimated and measured, and rounds declined because they would not fit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moonfed.available_memory import Available, fields
from moonfed.blobs.store import BlobDirectory
from moonfed.bundle.manifest import PLAN_FILE, WEIGHTS_FILE, InputSpec, Manifest
from moonfed.bundle.target import class_target
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.resources.memory_estimate import (
    CUDA_BYTES,
    CUDA_HOST_BYTES,
    PROGRAM_BYTES,
    Need,
    reference_bytes,
    require_fits,
    round_bytes,
    sample_bytes,
)
from moonfed.edge_client.training.data_placement import Memory, Placement
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import ResourceExhausted
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.fleet.assignment import AttemptId
from moonfed.sizes import human
from tests.edge_client.conftest import SANDBOX, Bundle, Device
from tests.support.compiled import device_bundle
from tests.support.device_coordinator import Coordinator
from tests.support.in_process_training import InProcessTraining

pytestmark = pytest.mark.slow

MB = 10**6
PLENTY = Available(host=10**12)


def changed(manifest: Manifest, *, activation_bytes: int = 0, frozen_encoders: int = 0) -> Manifest:
    plan = replace(
        manifest.plan, activation_bytes=activation_bytes, frozen_encoders=frozen_encoders, representation=256
    )
    return replace(manifest, plan=plan)


def bytes_of(manifest: Manifest) -> int:
    return 4 * sum(int(np.prod(spec.shape)) for spec in manifest.tensors)


def test_the_estimate_follows_from_the_manifest_and_the_data(bundle: Bundle) -> None:
    manifest = changed(bundle.manifest, activation_bytes=1000, frozen_encoders=2)
    model = bytes_of(manifest)
    need = round_bytes(manifest, samples=100, held_out=20, batch_size=8, epochs=3, runtime=7 * MB)
    assert need.host["model"] == model
    assert need.host["gradients and moments"] == 2 * model  # a perceptron has no statistics
    assert need.host["received"] == 2 * model  # the global model and one previous model
    assert need.host["samples"] == 120 * (6 * 4 + 8)
    assert need.host["references"] == 100 * 2 * 256 * 4
    assert need.host["frozen encoders"] >= 2 * model
    assert need.host["activations"] >= 8 * 1000
    assert need.host["torch and plan"] >= 7 * MB + PROGRAM_BYTES
    assert need.total == need.host_bytes == sum(need.parts().values())


def test_a_batch_is_no_larger_than_the_data(bundle: Bundle) -> None:
    manifest = changed(bundle.manifest, activation_bytes=1000)
    few = round_bytes(manifest, samples=5, batch_size=64, epochs=1)
    assert few.host["activations"] == round_bytes(manifest, samples=5, batch_size=5, epochs=1).host["activations"]
    many = round_bytes(manifest, samples=640, batch_size=64, epochs=1)
    assert many.host["activations"] > 10 * few.host["activations"]


def test_mixed_precision_keeps_copies_of_the_weights(bundle: Bundle) -> None:
    sizes = {
        precision: round_bytes(bundle.manifest, samples=9, batch_size=9, epochs=1, precision=precision).host["model"]
        for precision in ("float32", "bfloat16")
    }
    assert sizes["bfloat16"] == pytest.approx(1.5 * sizes["float32"], abs=4)


def test_the_estimate_separates_host_and_accelerator_memory(bundle: Bundle) -> None:
    need = round_bytes(bundle.manifest, samples=9, batch_size=9, epochs=1, accelerator="cuda", runtime=MB)
    assert set(need.host) >= {"torch and plan", "received", "samples"}
    assert set(need.accelerator) >= {"model", "gradients and moments", "activations"}
    assert not {"model", "activations"} & set(need.host)
    assert need.total == need.host_bytes + need.accelerator_bytes == sum(need.parts().values())


def test_on_cuda_libraries_take_memory_of_both_kinds_and_convolutions_in_float32_take_more(bundle: Bundle) -> None:
    manifest = changed(bundle.manifest, activation_bytes=MB)
    needs = {
        (device, precision): round_bytes(
            manifest, samples=9, batch_size=9, epochs=1, accelerator=device, precision=precision, runtime=MB
        )
        for device in ("cpu", "cuda")
        for precision in ("float32", "bfloat16")
    }
    for precision in ("float32", "bfloat16"):
        cpu, cuda = needs["cpu", precision].host, needs["cuda", precision]
        assert cuda.host["torch and plan"] == cpu["torch and plan"] + CUDA_HOST_BYTES
        assert cuda.accelerator["torch and plan"] == CUDA_BYTES
        assert (cuda.accelerator["activations"] > cpu["activations"]) == (precision == "float32")


@pytest.mark.parametrize(
    ("augmentation", "views", "epochs", "copies"),
    [
        ("none", 0, 10, 1),
        ("none", 0, 1, 0),
        ("crop-flip", 0, 10, 0),
        ("crop-flip", 3, 4, 3),
        ("crop-flip", 3, 3, 0),
    ],
)
def test_references_are_kept_once_for_each_copy_of_the_data_that_comes_back(
    bundle: Bundle, augmentation: str, views: int, epochs: int, copies: int
) -> None:
    manifest = replace(changed(bundle.manifest, frozen_encoders=2), augmentation=augmentation)
    need = round_bytes(manifest, samples=10, batch_size=5, epochs=epochs, views=views)
    assert need.host["references"] == copies * 10 * 2 * 256 * 4


@pytest.mark.parametrize("width", [0, 17, 4096])
def test_references_have_the_width_that_the_manifest_states(bundle: Bundle, width: int) -> None:
    manifest = bundle.manifest
    stated = replace(manifest, plan=replace(manifest.plan, frozen_encoders=3, representation=width))
    assert reference_bytes(stated) == 3 * 4 * width


def test_a_method_without_frozen_encoders_has_no_references(scaffold: Bundle) -> None:
    assert reference_bytes(scaffold.manifest) == 0
    assert sample_bytes(scaffold.manifest) == 6 * 4 + 8


def test_scaffold_needs_memory_for_its_variates(bundle: Bundle, scaffold: Bundle) -> None:
    def total(manifest: Manifest) -> int:
        return round_bytes(replace(manifest, previous_models=0), samples=9, batch_size=9, epochs=1).total

    assert total(scaffold.manifest) - total(bundle.manifest) >= 3 * bytes_of(scaffold.manifest)


def test_a_round_that_does_not_fit_is_declined_with_a_breakdown() -> None:
    need = Need(host={"torch and plan": 300 * MB, "model": 400 * MB, "references": 0}, accelerator={})
    require_fits(need, PLENTY, 700 * MB)
    with pytest.raises(
        ResourceExhausted,
        match=r"^the round needs about 700 MB \(torch and plan 300 MB, model 400 MB\); "
        r"the limit of this device is 699 MB \(--max-memory\)$",
    ):
        require_fits(need, PLENTY, 699 * MB)
    with pytest.raises(ResourceExhausted, match=r"; this device can provide at most 699 MB$"):
        require_fits(need, Available(host=699 * MB), None)


def test_host_and_accelerator_are_two_memories_or_one() -> None:
    need = Need(host={"samples": 3 * MB}, accelerator={"model": 5 * MB})
    require_fits(need, Available(host=3 * MB, accelerator=5 * MB), 8 * MB)
    with pytest.raises(
        ResourceExhausted, match=r"about 5 MB \(model 5 MB\); this device's accelerator can provide at most 4 MB"
    ):
        require_fits(need, Available(host=3 * MB, accelerator=4 * MB), None)
    with pytest.raises(ResourceExhausted, match=r"about 3 MB \(samples 3 MB\); this device can provide at most 2 MB"):
        require_fits(need, Available(host=2 * MB, accelerator=5 * MB), None)
    with pytest.raises(ResourceExhausted, match=r"about 8 MB \(.*\); the limit of this device is 7 MB"):
        require_fits(need, Available(host=3 * MB, accelerator=5 * MB), 7 * MB)
    with pytest.raises(ResourceExhausted, match=r"about 8 MB \(.*\); this device can provide at most 7 MB"):
        require_fits(need, Available(host=7 * MB, shared=True), None)  # a Jetson's


def test_nothing_is_declined_if_the_system_reports_no_memory() -> None:
    require_fits(Need(host={"model": 10**15}), Available(host=None), None)


def test_data_that_would_crowd_an_accelerator_stay_in_host_memory() -> None:
    data = {"samples": 3 * MB, "references": 2 * MB}
    need = Need(host={"samples": 3 * MB, "references": 0}, accelerator={"model": 5 * MB, **data})
    assert need.placed(Available(host=99 * MB, accelerator=10 * MB)) == need
    there = {"model": 5 * MB, "samples": 3 * MB}
    assert need.placed(Available(host=99 * MB, accelerator=9 * MB)) == Need(host=data, accelerator=there)
    nowhere = need.placed(Available(host=3 * MB, accelerator=9 * MB))
    assert nowhere == Need(host={"samples": 3 * MB}, accelerator=there)  # the step computes them
    alone = need.placed(Available(host=99 * MB, accelerator=5 * MB))  # the samples leave space for the references
    assert alone == Need(host=need.host, accelerator={"model": 5 * MB, "references": 2 * MB})
    assert need.placed(Available(host=99 * MB, accelerator=3 * MB)) == Need(host=data, accelerator={"model": 5 * MB})


@pytest.mark.parametrize("memory_size", range(1, 13))
def test_the_estimate_places_data_as_a_round_does(memory_size: int) -> None:
    """Residence asks for the samples, the feed then for the references."""
    memory = Memory(host=99 * MB, accelerator=memory_size * MB)
    samples = memory.place(3 * MB)
    references = memory.place(2 * MB, 3 * MB if samples is Placement.ACCELERATOR else 0)
    need = Need(host={"samples": 3 * MB}, accelerator={"samples": 3 * MB, "references": 2 * MB})
    placed = need.placed(Available(host=99 * MB, accelerator=memory_size * MB))
    assert ("samples" in placed.accelerator) == (samples is Placement.ACCELERATOR)
    assert ("references" in placed.accelerator) == (references is Placement.ACCELERATOR)


def test_sizes_are_readable() -> None:
    sizes = {12: "12 bytes", 4_000: "4 KB", 1_197_763: "1.2 MB", 9_960_000: "10 MB", 48_400_000: "48 MB"}
    assert {size: human(size) for size in sizes} == sizes
    assert human(3_140_000_000) == "3.1 GB"


BARE = """
import torch
from moonfed.available_memory import resident_memory
torch.set_num_threads(1)
print(resident_memory())
"""
PICTURES = InputSpec(kind="image", shape=(32, 32, 3))


@pytest.fixture(scope="module")
def bare() -> int:
    """Return the resident bytes of a process with torch."""
    done = subprocess.run([sys.executable, "-I", "-c", BARE], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(
    ("model", "method", "settings", "samples", "batch_size"),
    [
        ("cnn", "fedavg", {}, 1000, 64),
        ("cnn", "moon", {}, 1000, 64),
        ("cnn", "moon", {"previous_models": "3"}, 5000, 64),
        ("resnet18", "moon", {}, 48, 16),
    ],
)
def test_the_estimate_bounds_the_measured_peak_and_is_at_most_twice_of_it(
    model: str, method: str, settings: dict[str, str], samples: int, batch_size: int, bare: int, tmp_path: Path
) -> None:
    recipe = BundleRecipe(
        name="honest", model=model, input=PICTURES, target=class_target(("a", "b")), method=method, settings=settings
    )
    built = device_bundle(recipe)
    manifest, contents, blobs = built.manifest, built.contents, BlobDirectory(tmp_path / "blobs")
    files = {name: str(blobs.path(blobs.put_bytes(content).sha256)) for name, content in contents.items()}
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "samples.npz", inputs=inputs, labels=generator.integers(0, 2, samples))
    worker = WorkerSettings(
        state=str(tmp_path / "state"),
        device="cam-1",
        data=str(tmp_path / "samples.npz"),
        accelerator="cpu",
        holdout=0.0,
        threads=1,
        sandbox=SANDBOX,
    )
    rounds = manifest.previous_models + 1  # the last of them begins with all previous models
    jobs = [
        Job(
            id=AttemptId(run="measured", round=number, attempt=1),
            training=replace(manifest.training, epochs=2, batch_size=batch_size),
            seed=1,
            digest="0" * 64,
            manifest_file=files["manifest.json"],
            plan_file=files[PLAN_FILE],
            files={"model": files[WEIGHTS_FILE]},
            max_steps=samples // batch_size + 1 if number == rounds else 1,  # as few as references are kept for
        )
        for number in range(1, rounds + 1)
    ]
    process = WorkerProcess(worker)
    try:
        assert all(process.train(job, lambda _: True) for job in jobs)
        assert process._trainer
        peak = fields(Path(f"/proc/{process._trainer.pid}/status"))["VmHWM"]
    finally:
        process.end()
    measured = peak - bare
    estimate = round_bytes(manifest, samples=samples, batch_size=batch_size, epochs=2).total
    assert measured <= estimate <= 2 * measured


def worker_settings(tmp_path: Path, data: Path, max_memory: int | None = None) -> WorkerSettings:
    return WorkerSettings(
        state=str(tmp_path / "state"),
        device="cam-1",
        data=str(data),
        accelerator="cpu",
        holdout=0.0,
        threads=1,
        sandbox=SANDBOX,
        max_memory=max_memory,
    )


def test_available_memory_limits_a_round_without_max_memory(
    bundle: Bundle, new_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    """The step needs a hundred terabytes; the plan's file is not even opened."""
    manifest = changed(bundle.manifest, activation_bytes=10**13)
    file = tmp_path / "manifest.json"
    file.write_bytes(manifest.to_bytes())
    job = new_job(manifest_file=str(file), plan_file=str(tmp_path / "absent.pt"))
    with pytest.raises(ResourceExhausted, match=r"activations \d+\.\d GB.*; this device can provide at most .*$"):
        InProcessTraining(worker_settings(tmp_path, samples)).train(job)


@pytest.mark.usefixtures("forked_programs")
def test_a_real_worker_declines_before_it_trains(new_job: Callable[..., Job], samples: Path, tmp_path: Path) -> None:
    worker = WorkerProcess(worker_settings(tmp_path, samples, max_memory=100 * MB))
    try:
        with pytest.raises(ResourceExhausted, match=r"the limit of this device is 100 MB \(--max-memory\)$"):
            worker.train(new_job(), lambda _: True)
    finally:
        worker.end()
    assert not list((tmp_path / "state").glob("runs/*/*"))


@pytest.mark.usefixtures("fresh_programs")
def test_the_coordinator_receives_the_reason_why_a_round_is_declined(
    device: Device, coordinator: Coordinator, samples: Path, bundle: Bundle
) -> None:
    device.start(samples, "--max-memory", "100MB")
    coordinator.assign(bundle.assignment())
    reason = coordinator.wait_for_decline().reason
    found = re.fullmatch(
        r"the round needs about (\d+) MB \(torch and plan .*, samples .*\); "
        r"the limit of this device is 100 MB \(--max-memory\)",
        reason,
    )
    assert found, reason
    assert 100 < int(found[1]) < 2000
    device.stop()


def test_a_round_that_fits_into_max_memory_is_trained(
    device: Device, coordinator: Coordinator, samples: Path, bundle: Bundle
) -> None:
    device.start(samples, "--max-memory", "4GB")
    coordinator.assign(bundle.assignment())
    header, _ = coordinator.wait_for_update()
    assert header.steps == 10
    device.stop()


def test_adam_and_clipping_take_more_than_sgd(bundle: Bundle) -> None:
    model = bytes_of(bundle.manifest)
    values = {"learning_rate": 0.1, "gradient_clip_norm": 1.0, "gradient_clip_value": 1.0}
    clipping = replace(bundle.manifest, training=replace(bundle.manifest.training, hyperparameters=values))
    adam = replace(clipping, plan=replace(clipping.plan, optimiser="adam"))
    moments = [
        round_bytes(manifest, samples=9, batch_size=9, epochs=1).host["gradients and moments"]
        for manifest in (bundle.manifest, clipping, adam)
    ]
    assert moments == [2 * model, 4 * model, 5 * model]
