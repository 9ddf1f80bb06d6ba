"""Contenders of a comparison, and timed turns between them.

Every contender trains a whole round: from the same weights, over the same number of random samples, shuffled in every
epoch, to tensors on the CPU. A plan's round is `moonfed.edge_client.training.local_training.train_round`: all that a
device does between reading its input files and writing its results.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch

from benchmarks.eager import BATCH, MU, SGD, TAU, train_eagerly
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.training.data_placement import DataPlacement, Samples
from moonfed.edge_client.training.local_training import RoundSettings, train_round
from moonfed.export.augmentation import build_augmentation
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.plan.interface import Plan, TorchScriptPlan, load_torchscript_plan
from moonfed.plan.training_spec import TrainingSpec

SAMPLE = InputSpec(kind="image", shape=(32, 32, 3))
CLASSES, EPOCHS = 10, 10
HYPERPARAMETERS = {
    "learning_rate": SGD.learning_rate,
    "momentum": SGD.momentum,
    "weight_decay": SGD.weight_decay,
    "mu": MU,
    "tau": TAU,
}
Round = Callable[[int], object]  # trains that many epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Model, accelerator and samples that all contenders train."""

    model: str
    accelerator: str  # cpu or cuda
    samples: int
    epochs: int = EPOCHS

    @property
    def steps(self) -> int:
        return self.samples // BATCH * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to train a round; `cached`, `augmentation` and `views` apply to plans."""

    name: str
    loop: Literal["eager", "plan"]
    method: Literal["fedavg", "moon"]
    memory_format: str | None = None  # None: torch's default for the eager loop, the device's for a plan
    precision: str = "float32"
    cached: bool = True  # references computed once per round if views allow it; False: in each step
    augmentation: str = "none"
    views: int = 0


EAGER_FEDAVG = Contender(name="eager FedAvg", loop="eager", method="fedavg")
EAGER_MOON = Contender(name="eager MOON", loop="eager", method="moon")
PLAN_FEDAVG = Contender(name="plan FedAvg", loop="plan", method="fedavg")
PLAN_MOON_EACH = Contender(name="plan MOON, references in each step", loop="plan", method="moon", cached=False)
PLAN_MOON = Contender(name="plan MOON, references cached", loop="plan", method="moon")
FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def new_round(contender: Contender, work: Workload, seed: int = 0) -> Round:
    """Prepare a contender's round, which may be trained repeatedly; the data follow from the seed."""
    network = build_network(work.model, SAMPLE, class_target(CLASSES))
    data = random_samples(work.samples, seed)
    return (
        _eager_round(contender, work, network, data)
        if contender.loop == "eager"
        else _plan_round(contender, work, network, data)
    )


def _eager_round(contender: Contender, work: Workload, network: Network, data: Samples) -> Round:
    inputs, labels = data.inputs.to(work.accelerator), data.targets.to(work.accelerator)
    previous = _previous(work) if contender.method == "moon" else None

    def train(epochs: int) -> object:
        return train_eagerly(
            network,
            previous,
            inputs,
            labels,
            epochs=epochs,
            memory_format=FORMATS[contender.memory_format or "contiguous"],
            mixed=contender.precision == "bfloat16",
        )

    return train


def _plan_round(contender: Contender, work: Workload, network: Network, data: Samples) -> Round:
    accelerator = torch.device(work.accelerator)
    residence = DataPlacement(accelerator)
    plan: Plan = _load(contender, work, network)
    if not contender.cached:
        plan = cast(Plan, _Uncached(plan))
    model, previous = (
        [tensor.detach() for tensor in exchanged_tensors(weights).values()] for weights in (network, _previous(work))
    )

    def train(epochs: int) -> object:
        settings = RoundSettings(
            training=TrainingSpec(
                epochs=epochs, batch_size=BATCH, views=contender.views, hyperparameters=HYPERPARAMETERS
            ),
            seed=0,
            round=1,
            device="benchmark",
        )
        return train_round(
            plan,
            residence.place(data),
            model=model,
            previous_models=[previous],
            received={},
            settings=settings,
            accelerator=accelerator,
        )

    return train


def _previous(work: Workload) -> Network:
    """Build a model that differs from the global one: with two equal models the contrastive term has no gradient."""
    return build_network(work.model, SAMPLE, class_target(CLASSES), seed=1)


def random_samples(count: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return Samples(
        inputs=torch.randint(0, 256, (count, *SAMPLE.shape), dtype=torch.uint8, generator=generator),
        targets=torch.randint(0, CLASSES, (count,), generator=generator),
    )


def _load(contender: Contender, work: Workload, network: Network) -> TorchScriptPlan:
    """Compile, save and load a plan, as a device receives it."""
    scripted = compile_plan(
        network,
        METHODS[contender.method](),
        HYPERPARAMETERS,
        augmentation=build_augmentation(contender.augmentation, SAMPLE),
        model="benchmark",
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.pt"
        save_plan(path, scripted)
        return load_torchscript_plan(
            path, work.accelerator, precision=contender.precision, memory_format=contender.memory_format
        )


class _Uncached:
    """A plan that requests no references in advance, so that its script computes them in each step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def reference_count(self) -> int:
        return 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._plan, name)


def alternate(rounds: Mapping[Contender, Round], work: Workload, turns: int) -> dict[Contender, list[float]]:
    """Return seconds per round; contenders alternate, every second turn reversed, to spread interference."""
    for train in rounds.values():  # one epoch of warm-up for allocators, caches and kernel selection
        train(1)
    seconds: dict[Contender, list[float]] = {contender: [] for contender in rounds}
    for turn in range(turns):
        for contender in list(rounds)[:: -1 if turn % 2 else 1]:
            seconds[contender].append(timed(rounds[contender], work))
    return seconds


def timed(train: Round, work: Workload) -> float:
    """Time one round in seconds."""
    started = time.perf_counter()
    train(work.epochs)
    if work.accelerator == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
