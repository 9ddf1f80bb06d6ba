"""A model trained on digits, as one round of a run on a Control service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits

from moonfed.blobs.tensors import Vector, open_model, split
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.plan.interface import load_plan
from tests.support.compiled import cached_bundle
from tests.support.session_cache import cached

EPOCHS, BATCH = 8, 32
TRAINED = 1000  # samples; then as many for calibration, then the test data
CALIBRATED = 200
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RECIPE = BundleRecipe(
    name="digits",
    model="cnn",
    input=InputSpec(kind="image", shape=(8, 8, 1)),
    target=class_target(CLASSES),
    method="moon",
    settings={"learning_rate": "0.02"},
    mean=(0.25,),
    deviation=(0.5,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A bundle, its trained weights, and files of held-out data."""

    bundle: Bundle
    model: Vector
    directory: Path
    test: DataSet

    @property
    def test_file(self) -> Path:
        return self.directory / "test.npz"

    @property
    def calibration_file(self) -> Path:
        return self.directory / "calibration.npz"


def train_digits(directory: Path) -> Trained:
    inputs, labels = _digits()
    bundle = cached_bundle(RECIPE)
    end = TRAINED + CALIBRATED
    np.savez(directory / "calibration.npz", inputs=inputs[TRAINED:end])
    np.savez(directory / "test.npz", inputs=inputs[end:], labels=labels[end:])
    trained = cached(
        b"trained digits",
        lambda path: path.write_bytes(_train(bundle, directory, inputs[:TRAINED], labels[:TRAINED]).tobytes()),
    )
    model = np.fromfile(trained, np.float32)
    test = DataSet(inputs=inputs[end:], targets=labels[end:], target=class_target(CLASSES))
    return Trained(bundle=bundle, model=model, directory=directory, test=test)


def _digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    pixels = (found.images * (255 / 16)).round().astype(np.uint8)[..., None]
    return pixels[order], found.target[order].astype(np.int64)


def _train(bundle: Bundle, directory: Path, inputs: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> Vector:
    for name in (PLAN_FILE, WEIGHTS_FILE):
        (directory / name).write_bytes(bundle.contents[name])
    manifest = bundle.manifest
    plan = load_plan(directory / PLAN_FILE, "cpu")
    initial = split(np.array(open_model(directory / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    plan.begin_round(
        [torch.from_numpy(tensor) for tensor in initial.values()], [], {}, manifest.training.hyperparameters
    )
    empty, steps = torch.empty(0), 0
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(labels))
        for start in range(0, len(labels), BATCH):
            index = order[start : start + BATCH]
            images, targets = torch.from_numpy(inputs[index]), torch.from_numpy(labels[index])
            plan.step(images, targets, empty, torch.rand(len(index), plan.draws_per_sample()))
            steps += 1
    return np.concatenate([tensor.numpy().reshape(-1) for tensor in plan.end_round(steps)["model"]])
