"""A frozen ResNet-18 with a trained head: bytes of a round, and seconds of an epoch, against exchanging all of it.

Both sides start from the same weights, with the encoder frozen, and train five epochs of the same samples on two
threads; they alternate. "Exchanged" is what frozen parameters were before models had parts: every tensor travels,
BatchNorm's statistics drift, and each step passes all layers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.tensors import file_size
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.training.local_training import RoundSettings, Samples, train_round
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors, tensor_specs
from moonfed.export.optimiser import Sgd
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.export.tensor_parts import TensorParts, read_parts
from moonfed.plan.interface import load_plan
from moonfed.plan.training_spec import TrainingSpec

SAMPLE, CLASSES = InputSpec(kind="image", shape=(32, 32, 3)), 10
SAMPLES, BATCH, EPOCHS, TURNS = 256, 64, 5, 3
HYPERPARAMETERS = Sgd().hyperparameters()


def measure_parts() -> Tables:
    """Yield the table."""
    progress("resnet18 with a frozen encoder")
    network = build_network("resnet18", SAMPLE, class_target(CLASSES), projection=None)
    frozen = read_parts(network, "encoder")
    exchanged = TensorParts(tuple(exchanged_tensors(network)))
    rounds = {name: _round(network, parts) for name, parts in (("frozen", frozen), ("exchanged", exchanged))}
    seconds: dict[str, list[float]] = {name: [] for name in rounds}
    for turn in range(TURNS):
        for name in list(rounds)[:: 1 if turn % 2 else -1]:
            start = time.monotonic()
            rounds[name]()
            seconds[name].append((time.monotonic() - start) / EPOCHS)
    epochs = {name: statistics.median(found) for name, found in seconds.items()}
    specs = {spec.name: spec for spec in tensor_specs(network)}
    sizes = {
        name: file_size([specs[tensor] for tensor in parts.shared])
        for name, parts in (("frozen", frozen), ("exchanged", exchanged))
    }
    what = f"resnet18, {SAMPLES} images of 32x32, {EPOCHS} epochs"
    yield [
        Figure(name=f"{what}: bytes each way, all exchanged", value=sizes["exchanged"], unit="B"),
        Figure(name=f"{what}: bytes each way, encoder frozen", value=sizes["frozen"], unit="B", at_most=21_000),
        Figure(name=f"{what}: epoch, all exchanged", value=epochs["exchanged"], unit="s"),
        Figure(name=f"{what}: epoch, encoder frozen", value=epochs["frozen"], unit="s"),
        Figure(
            name=f"{what}: all exchanged / encoder frozen",
            value=epochs["exchanged"] / epochs["frozen"],
            unit="",
            at_least=3.0,
        ),
    ]


def _round(network: Network, parts: TensorParts) -> Callable[[], object]:
    tensors = {name: tensor.detach() for name, tensor in exchanged_tensors(network).items()}
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / "plan.pt"
        save_plan(path, compile_plan(network, METHODS["fedavg"](), HYPERPARAMETERS, parts=parts, model="resnet18"))
        plan = load_plan(path, "cpu", frozen=[tensors[name] for name in parts.frozen])
    generator = torch.Generator().manual_seed(0)
    data = Samples(
        inputs=torch.randint(0, 256, (SAMPLES, *SAMPLE.shape), generator=generator, dtype=torch.uint8),
        targets=torch.randint(0, CLASSES, (SAMPLES,), generator=generator),
    )
    training = TrainingSpec(epochs=EPOCHS, batch_size=BATCH, hyperparameters=HYPERPARAMETERS)
    settings = RoundSettings(training=training, seed=0, round=1, device="cam-1")
    model = [tensors[name] for name in parts.shared]
    return lambda: train_round(plan, data, model=model, previous_models=[], received={}, settings=settings)
