"""int8 against float32: a model trained on digits, with the variants, gate and figures of a release.

The digits are scikit-learn's; the graph resizes them to 32x32 pixels, so that a ResNet's forward pass costs as much as
on CIFAR-10. int8 is calibrated on the training data; top-1 is measured on held-out data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.report import Figure, progress
from moonfed.blobs.store import ref_of_file
from moonfed.blobs.tensors import Vector, open_model, split
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_FILE, PLAN_FILE, WEIGHTS_FILE
from moonfed.bundle.target import class_target
from moonfed.data.npz import NpzSource
from moonfed.edge_client.training.local_training import RoundSettings, Samples, train_round
from moonfed.experiments.datasets import SplitDataSet, load_dataset, preprocessing
from moonfed.export.binding import bind
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.model_zoo import PROJECTION
from moonfed.plan.interface import load_plan
from moonfed.release.calibration import read_calibration
from moonfed.release.simplify import simplify
from moonfed.release.variants import FLOAT32, INT8, Variant, VariantOptions, make_variants

LEARNING_RATES = (0.01, 0.001)  # of two consecutive rounds; the second lets the accuracy converge
BATCH, SEED = 32, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedDigits:
    """Variants of a trained model, and their files."""

    variants: Mapping[str, Variant]
    files: Mapping[str, Path]
    tested: int  # samples

    def figures(self, model: str) -> list[Figure]:
        """Return float32's top-1, and the points lost to int8."""
        float32, int8 = self.variants[FLOAT32], self.variants[INT8]
        what = f"{model}, digits, {self.tested} test samples"
        return [
            Figure(name=f"{what}: top-1 in float32", value=100 * float32.measurements.score.value, unit="%"),
            Figure(name=f"{what}: top-1 lost to int8", value=int8.drop, unit="points", at_most=0.5),
        ]


def train_digits(model: str, epochs: int, directory: Path) -> QuantisedDigits:
    """Train that model and build its int8 variant."""
    progress(f"{model} trains on digits, {epochs} epochs")
    data = load_dataset("digits", None)
    recipe = BundleRecipe(
        name="digits",
        model=model,
        input=data.input,
        target=class_target(data.classes),
        mean=preprocessing(data).mean,
        deviation=preprocessing(data).deviation,
        settings={"epochs": epochs, "batch_size": BATCH},
        projection=PROJECTION,
    )
    bundle = build_bundle(recipe)
    trained = _train(bundle, data, epochs, directory)
    graph = simplify(bind(bundle.contents[GRAPH_FILE], trained, bundle.manifest))
    variants = _variants(graph, bundle, data, directory)
    files = {name: directory / f"digits-{name}.onnx" for name in variants}
    for name, path in files.items():
        path.write_bytes(variants[name].graph)
    return QuantisedDigits(variants=variants, files=files, tested=len(data.test.labels))


def _train(bundle: Bundle, data: SplitDataSet, epochs: int, directory: Path) -> Vector:
    """Train two rounds as a device does; the second has one epoch."""
    for name in (PLAN_FILE, WEIGHTS_FILE):
        (directory / name).write_bytes(bundle.contents[name])
    manifest, plan = bundle.manifest, load_plan(directory / PLAN_FILE, "cpu")
    samples = Samples(inputs=torch.from_numpy(data.train.inputs), targets=torch.from_numpy(data.train.labels))
    begun = split(np.array(open_model(directory / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    model = [torch.from_numpy(tensor) for tensor in begun.values()]
    training = replace(manifest.training, batch_size=BATCH, views=0)
    for number, (rate, count) in enumerate(zip(LEARNING_RATES, (epochs, 1), strict=True), start=1):
        settings = RoundSettings(
            training=replace(training.with_hyperparameters({"learning_rate": rate}), epochs=count),
            seed=SEED,
            round=number,
            device="benchmark",
        )
        trained = train_round(plan, samples, model=model, previous_models=[], received={}, settings=settings)
        model = trained.results["model"]
    return np.concatenate([tensor.numpy().reshape(-1) for tensor in model])


def _variants(graph: bytes, bundle: Bundle, data: SplitDataSet, directory: Path) -> dict[str, Variant]:
    test, train = directory / "test.npz", directory / "train.npz"
    np.savez(test, inputs=data.test.inputs, labels=data.test.labels)
    np.savez(train, inputs=data.train.inputs)
    sha256 = ref_of_file(test).sha256
    calibration = read_calibration(NpzSource(train), bundle.manifest.input, data.test.inputs, sha256)
    held_out = data.test
    made = make_variants(graph, held_out, sha256, VariantOptions(names=(INT8,), calibration=calibration))
    return {variant.name: variant for variant in made}
