"""The sides of a comparison: what trains a round, and how; and sides that take turns against the clock.

Every side does a whole round of local training: from the same weights, over as many random samples, shuffled anew in
every epoch, to tensors on the CPU. A plan's round is
`moonfed.edge_client.training.local_training.train_round`: all that a device does between
the files it reads and the files it writes.
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
from moonfed.edge_client.training.data_placement import Residence, Samples
from moonfed.edge_client.training.local_training import RoundSettings, train_round
from moonfed.export.augmentation import build_augmentation
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.manifest import InputSpec
from moonfed.plan import Plan, TorchScriptPlan, load_plan

SAMPLE = InputSpec(kind="image", shape=(32, 32, 3))
CLASSES, EPOCHS = 10, 10
HYPERPARAMETERS = {
    "learning_rate": SGD.learning_rate,
    "momentum": SGD.momentum,
    "weight_decay": SGD.weight_decay,
    "mu": MU,
    "tau": TAU,
}
Round = Callable[[int], object]  # so many epochs of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What all sides of a comparison train."""

    model: str
    accelerator: str  # cpu or cuda
    samples: int
    epochs: int = EPOCHS

    @property
    def steps(self) -> int:
        return self.samples // BATCH * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to train a round. `cached`, `augmentation` and `views` are of plans."""

    name: str
    loop: Literal["eager", "plan"]
    method: Literal["fedavg", "moon"]
    memory_format: str | None = None  # None: torch's default for the eager loop, the device's for a plan
    precision: str = "float32"
    cached: bool = True  # references once per round where views allow it; False: in each step
    augmentation: str = "none"
    views: int = 0


EAGER_FEDAVG = Side(name="eager FedAvg", loop="eager", method="fedavg")
EAGER_MOON = Side(name="eager MOON", loop="eager", method="moon")
PLAN_FEDAVG = Side(name="plan FedAvg", loop="plan", method="fedavg")
PLAN_MOON_EACH = Side(name="plan MOON, references in each step", loop="plan", method="moon", cached=False)
PLAN_MOON = Side(name="plan MOON, references cached", loop="plan", method="moon")
FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def new_round(side: Side, work: Work, seed: int = 0) -> Round:
    """A side's round, to be trained as often as wanted. Plan and data are made here; the data follow from the seed."""
    network = build_network(work.model, SAMPLE, CLASSES)
    data = random_samples(work.samples, seed)
    return _eager_round(side, work, network, data) if side.loop == "eager" else _plan_round(side, work, network, data)


def _eager_round(side: Side, work: Work, network: Network, data: Samples) -> Round:
    inputs, labels = data.inputs.to(work.accelerator), data.labels.to(work.accelerator)
    previous = _previous(work) if side.method == "moon" else None

    def train(epochs: int) -> object:
        return train_eagerly(
            network,
            previous,
            inputs,
            labels,
            epochs=epochs,
            memory_format=FORMATS[side.memory_format or "contiguous"],
            mixed=side.precision == "bfloat16",
        )

    return train


def _plan_round(side: Side, work: Work, network: Network, data: Samples) -> Round:
    accelerator = torch.device(work.accelerator)
    residence = Residence(accelerator)
    plan: Plan = _load(side, work, network)
    if not side.cached:
        plan = cast(Plan, _Uncached(plan))
    model, previous = (
        [tensor.detach() for tensor in exchanged_tensors(weights).values()] for weights in (network, _previous(work))
    )

    def train(epochs: int) -> object:
        settings = RoundSettings(
            epochs=epochs,
            batch_size=BATCH,
            views=side.views,
            hyperparameters=HYPERPARAMETERS,
            seed=0,
            round=1,
            device="benchmark",
        )
        return train_round(
            plan,
            residence.of(data),
            model=model,
            previous_models=[previous],
            received={},
            settings=settings,
            accelerator=accelerator,
        )

    return train


def _previous(work: Work) -> Network:
    """Another model than the global one: the contrastive term of two equal ones has no gradient."""
    return build_network(work.model, SAMPLE, CLASSES, seed=1)


def random_samples(count: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return Samples(
        inputs=torch.randint(0, 256, (count, *SAMPLE.shape), dtype=torch.uint8, generator=generator),
        labels=torch.randint(0, CLASSES, (count,), generator=generator),
    )


def _load(side: Side, work: Work, network: Network) -> TorchScriptPlan:
    """A plan as a device gets it: compiled, saved, loaded."""
    scripted = compile_plan(
        network,
        METHODS[side.method](),
        HYPERPARAMETERS,
        augmentation=build_augmentation(side.augmentation, SAMPLE),
        model="benchmark",
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.pt"
        save_plan(path, scripted)
        return load_plan(path, work.accelerator, precision=side.precision, memory_format=side.memory_format)


class _Uncached:
    """A plan that asks for no references beforehand, so that its script computes them in each step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def reference_count(self) -> int:
        return 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._plan, name)


def alternate(rounds: Mapping[Side, Round], work: Work, turns: int) -> dict[Side, list[float]]:
    """Seconds per round. Sides take turns, every second time backwards, so that the machine's moods hit all alike."""
    for train in rounds.values():  # allocators, caches and the choice of kernels settle in an epoch
        train(1)
    seconds: dict[Side, list[float]] = {side: [] for side in rounds}
    for turn in range(turns):
        for side in list(rounds)[:: -1 if turn % 2 else 1]:
            seconds[side].append(timed(rounds[side], work))
    return seconds


def timed(train: Round, work: Work) -> float:
    """Seconds of one round."""
    started = time.perf_counter()
    train(work.epochs)
    if work.accelerator == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
