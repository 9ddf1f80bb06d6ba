"""Accuracy of five devices, one of them malicious, and of honest uneven fleets, under bounds and reducers.

All defences of one fleet train side by side, on the same batches from the same initial weights, and every round ends in
the coordinator's own aggregation. The malicious device claims ten million samples and attacks with its own:

- label flip: class c becomes C - 1 - c, and the update is 20 times as long;
- reversal: its honest update, reversed and 50 times as long;
- backdoor: a bright corner means class 0, and the update is 5 times as long.

A final accuracy is the mean over the last three rounds. Devices train in this process, with plain SGD.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import TensorSpec, Vector, open_model, split, write_model
from moonfed.bundle.manifest import FILES, MODEL, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.aggregation.robust.config import DEFAULT_CLIP_FACTOR, DEFAULT_WEIGHT_CAP
from moonfed.coordinator.draw import SECRET_BYTES, Draw
from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import load_dataset, preprocessing
from moonfed.experiments.partition import PartitionSettings, partition
from moonfed.experiments.subsets import subset
from moonfed.plan.training_spec import TrainingSpec

DEVICES, SEEDS, LAST = 5, 5, 3
CLAIMED = 10_000_000
ATTACKS: Mapping[str, float] = {"label flip": 20.0, "reversal": -50.0, "backdoor": 5.0}  # with the update's factor
HONEST = (0.1, 0.3, 0.5)  # the Dirichlet betas of honest fleets
ATTACKED, MALICIOUS = 0.5, "device-0"  # that of fleets with a malicious device
EXCLUDE_AFTER = 3
AT_MOST, HONEST_AT_MOST = 5.0, 0.5  # points of accuracy that the default bounds may cost
HIDDEN, BATCH, LEARNING_RATE, MOMENTUM = 64, 32, 0.02, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustCase:
    """A data set, as it is used here."""

    dataset: str
    train_samples: int = 0  # 0: all
    test_samples: int = 0
    pooled: int = 1  # pixels a side that are averaged into one
    rounds: int = 30
    epochs: int = 2
    corner: int = 2  # pixels a side of the backdoor's mark


CASES = {
    "digits": RobustCase(dataset="digits"),
    "fashion-mnist": RobustCase(
        dataset="fashion-mnist", train_samples=3000, test_samples=2000, pooled=2, rounds=20, epochs=1, corner=3
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defence:
    """Robust settings under the name that the tables have."""

    name: str
    settings: RunSettings
    excludes: bool = False


def bounded(factor: float, clip: float, *, excludes: bool = False) -> Defence:
    """Return a weight cap of `factor`/N, and a clip at `clip` medians."""
    suffix = f", excluding after {EXCLUDE_AFTER}" if excludes else ""
    settings = RunSettings(weight_cap=factor, clip_factor=clip)
    return Defence(name=f"cap {factor:g}/N, clip {clip:g}{suffix}", settings=settings, excludes=excludes)


DEFAULT = bounded(DEFAULT_WEIGHT_CAP, DEFAULT_CLIP_FACTOR)
NONE = Defence(name="none", settings=RunSettings())
BOUNDS = tuple(bounded(*pair) for pair in ((1.5, 1.5), (1.25, 1.25), (1, 1.5), (1.5, 1), (1, 1)))
REDUCERS = (
    Defence(name="median", settings=RunSettings(reducer="median")),
    Defence(name="multi_krum", settings=RunSettings(reducer="multi_krum", reducer_settings={"byzantine": 1})),
)
AGAINST_ATTACKS = (NONE, bounded(1.5, 3), *BOUNDS, bounded(1.25, 1.25, excludes=True), *REDUCERS)
OF_HONEST_FLEETS = (NONE, *BOUNDS, *REDUCERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One simulated fleet; without an attack all of its devices are honest."""

    case: RobustCase
    beta: float
    seed: int
    attack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one fleet under one defence."""

    accuracies: Sequence[float]  # percent, by round
    backdoor: float  # percent of other classes' marked pictures that the last model takes for class 0
    streaks: Mapping[str, int]  # the longest row of rounds in which each device was reported as clipped

    @property
    def accuracy(self) -> float:
        """The final accuracy in percent."""
        return statistics.fmean(self.accuracies[-LAST:])


class Perceptron(torch.nn.Module):
    """One hidden layer, which is small enough to train dozens of fleets on two cores."""

    def __init__(self, pixels: int, classes: int) -> None:
        super().__init__()
        self.hidden = torch.nn.Linear(pixels, HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        scores: Tensor = self.head(functional.relu(self.hidden(pictures.flatten(1))))
        return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Pictures [N, 1, side, side] and labels [N]."""

    pictures: Tensor
    labels: Tensor

    def take(self, rows: Any) -> Samples:
        """Return the samples in these rows."""
        return Samples(pictures=self.pictures[rows], labels=self.labels[rows])


def data_folder() -> Path | None:
    """Return the folder that FASHION_MNIST names."""
    named = os.environ.get("FASHION_MNIST")
    return Path(named) if named else None


def measure_robust(root: Path | None, seeds: int = SEEDS, rounds: int | None = None) -> Tables:
    """Measure the digits and, if `root` has torchvision's files, Fashion-MNIST; the default bounds have targets."""
    for name, case in CASES.items():
        if name == "digits" or root:
            yield from _measure(replace(case, rounds=rounds) if rounds else case, root, seeds)


def _measure(case: RobustCase, root: Path | None, seeds: int) -> Tables:
    plain: dict[float, list[Outcome]] = {}
    for beta in HONEST:
        found = _outcomes([Fleet(case=case, beta=beta, seed=seed) for seed in range(seeds)], root, OF_HONEST_FLEETS)
        plain[beta] = found[NONE.name]
        yield _figures(f"{case.dataset}, beta {beta:g}, honest", found, plain[beta], HONEST_AT_MOST)
    for attack in ATTACKS:
        fleets = [Fleet(case=case, beta=ATTACKED, seed=seed, attack=attack) for seed in range(seeds)]
        found = _outcomes(fleets, root, AGAINST_ATTACKS)
        yield _figures(f"{case.dataset}, {attack}", found, plain[ATTACKED], AT_MOST)


def _outcomes(fleets: Sequence[Fleet], root: Path | None, defences: Sequence[Defence]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for fleet in fleets:
        progress(f"{fleet.case.dataset}, beta {fleet.beta:g}, {fleet.attack or 'honest'}, seed {fleet.seed}")
        for name, outcome in simulate(fleet, root, defences).items():
            found[name].append(outcome)
    return found


def _figures(
    fleet: str, found: Mapping[str, Sequence[Outcome]], plain: Sequence[Outcome], at_most: float
) -> list[Figure]:
    """Compare with the honest fleet of the same seeds without bounds."""
    figures = []
    for name, outcomes in found.items():
        lost = statistics.fmean(one.accuracy - other.accuracy for one, other in zip(plain, outcomes, strict=True))
        target = at_most if name == DEFAULT.name else None
        accuracy = statistics.fmean(outcome.accuracy for outcome in outcomes)
        figures += [
            Figure(name=f"{fleet}: final accuracy, {name}", value=accuracy, unit="%"),
            Figure(name=f"{fleet}: accuracy lost, {name}", value=lost, unit="points", at_most=target),
            Figure(
                name=f"{fleet}: longest row of clips of an honest device, {name}",
                value=max(_longest(outcome, malicious=False) for outcome in outcomes), unit="rounds",
            ),
        ]  # fmt: skip
        if at_most == AT_MOST:
            named = min(_longest(outcome, malicious=True) for outcome in outcomes)
            backdoor = statistics.fmean(outcome.backdoor for outcome in outcomes)
            figures += [
                Figure(name=f"{fleet}: shortest row of clips of the malicious one, {name}", value=named, unit="rounds"),
                Figure(name=f"{fleet}: marked pictures taken for class 0, {name}", value=backdoor, unit="%"),
            ]
    return figures


def _longest(outcome: Outcome, *, malicious: bool) -> int:
    return max((number for device, number in outcome.streaks.items() if (device == MALICIOUS) == malicious), default=0)


def load(case: RobustCase, root: Path | None, seed: int) -> tuple[Samples, Samples]:
    """Return the training and the test samples, normalised."""
    data = subset(
        load_dataset(case.dataset, root), train_samples=case.train_samples, test_samples=case.test_samples, seed=seed
    )
    usual = preprocessing(data)
    parts = []
    for part in (data.train, data.test):
        pictures = torch.tensor(np.asarray(part.inputs)[..., 0], dtype=torch.float32)[:, None] / 255
        pictures = functional.avg_pool2d((pictures - usual.mean[0]) / usual.deviation[0], case.pooled)
        parts.append(Samples(pictures=pictures, labels=torch.tensor(np.asarray(part.labels))))
    return parts[0], parts[1]


def marked(pictures: Tensor, corner: int) -> Tensor:
    """Return the pictures with the backdoor's mark."""
    pictures = pictures.clone()
    pictures[:, :, -corner:, -corner:] = pictures.amax()
    return pictures


def poisoned(samples: Samples, fleet: Fleet, classes: int) -> Samples:
    """Return what the malicious device trains on."""
    if fleet.attack == "label flip":
        return Samples(pictures=samples.pictures, labels=classes - 1 - samples.labels)
    if fleet.attack == "backdoor":
        pictures = torch.cat([samples.pictures, marked(samples.pictures, fleet.case.corner)])
        return Samples(pictures=pictures, labels=torch.cat([samples.labels, torch.zeros_like(samples.labels)]))
    return samples


def simulate(fleet: Fleet, root: Path | None, defences: Sequence[Defence]) -> dict[str, Outcome]:
    """Return the outcome of each defence, by its name."""
    torch.set_num_threads(1)
    train, test = load(fleet.case, root, fleet.seed)
    classes = int(train.labels.max()) + 1
    uneven = PartitionSettings(devices=DEVICES, beta=fleet.beta, seed=fleet.seed)
    owned = [train.take(part) for part in partition(train.labels.numpy(), uneven)]
    if fleet.attack:
        owned[0] = poisoned(owned[0], fleet, classes)
    torch.manual_seed(fleet.seed)
    network = Perceptron(train.pictures[0].numel(), classes)
    specs = tuple(
        TensorSpec(name, tuple(value.shape), "parameter") for name, value in sorted(network.state_dict().items())
    )
    with tempfile.TemporaryDirectory() as directory:
        sides = [
            _Side(Path(directory, str(number)), defence, specs, network) for number, defence in enumerate(defences)
        ]
        for round_ in range(1, fleet.case.rounds + 1):
            begun = {spec.name: torch.stack([side.tensors()[spec.name] for side in sides]) for spec in specs}
            trained = [_train(network, begun, samples, fleet, (round_, device)) for device, samples in enumerate(owned)]
            for number, side in enumerate(sides):
                models = [{name: value[number] for name, value in model.items()} for model in trained]
                side.close(round_, models, [len(samples.labels) for samples in owned], fleet.attack)
                side.accuracies.append(100 * _share(network, side, test.pictures, test.labels))
        others = test.take(test.labels != 0)
        mark = marked(others.pictures, fleet.case.corner)
        return {
            side.defence.name: Outcome(
                accuracies=side.accuracies,
                backdoor=100 * _share(network, side, mark, torch.zeros_like(others.labels)),
                streaks=dict(side.longest),
            )
            for side in sides
        }


def _train(
    network: torch.nn.Module, begun: Mapping[str, Tensor], samples: Samples, fleet: Fleet, place: tuple[int, int]
) -> dict[str, Tensor]:
    """Train all sides' models on one device's samples."""

    def loss(parameters: dict[str, Tensor], pictures: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(network, parameters, (pictures,)), labels)

    step, parameters = vmap(grad(loss), in_dims=(0, None, None)), dict(begun)
    velocity = {name: torch.zeros_like(value) for name, value in begun.items()}
    generator = torch.Generator().manual_seed(hash((fleet.seed, *place)) % 2**31)
    for _ in range(fleet.case.epochs):
        order = torch.randperm(len(samples.labels), generator=generator)
        for start in range(0, len(order), BATCH):
            batch = samples.take(order[start : start + BATCH])
            slopes = step(parameters, batch.pictures, batch.labels)
            velocity = {name: MOMENTUM * value + slopes[name] for name, value in velocity.items()}
            parameters = {name: value - LEARNING_RATE * velocity[name] for name, value in parameters.items()}
    if fleet.attack and place[1] == 0:
        factor = ATTACKS[fleet.attack]
        return {name: begun[name] + factor * (value - begun[name]) for name, value in parameters.items()}
    return parameters


class _Side:
    """The coordinator's part under one defence."""

    def __init__(
        self, directory: Path, defence: Defence, specs: Sequence[TensorSpec], network: torch.nn.Module
    ) -> None:
        directory.mkdir()
        self.defence, self.directory, self.specs = defence, directory, tuple(specs)
        self.state: Mapping[str, Path] = {MODEL: self._write("initial", dict(network.state_dict()))}
        self.accuracies: list[float] = []
        self.streaks: dict[str, int] = defaultdict(int)
        self.longest: dict[str, int] = defaultdict(int)
        self.manifest = Manifest(
            name="robust", model="cnn", method="fedavg", previous_models=0,
            training=TrainingSpec(epochs=1, batch_size=BATCH, hyperparameters={"learning_rate": LEARNING_RATE}),
            input=InputSpec(kind="features", shape=(1,)), target=class_target(("a", "b")), tensors=self.specs,
            plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.4", activation_bytes=0),
            files={name: ref_of_bytes(b"") for name in FILES},
        )  # fmt: skip

    def _write(self, name: str, tensors: Mapping[str, Tensor]) -> Path:
        path = self.directory / name
        write_model(path, self.specs, [tensors[spec.name].detach().numpy().ravel() for spec in self.specs])
        return path

    def tensors(self) -> dict[str, Tensor]:
        """Return the global model."""
        vector: Vector = np.array(open_model(self.state[MODEL], self.specs))
        values = split(vector, self.specs)
        return {spec.name: torch.tensor(values[spec.name]).reshape(spec.shape) for spec in self.specs}

    def close(self, round_: int, models: Sequence[Mapping[str, Tensor]], samples: Sequence[int], attack: str) -> None:
        """Aggregate a round of the devices that are not excluded and sent finite numbers."""
        contributions = []
        for number, model in enumerate(models):
            device = f"device-{number}"
            finite = all(bool(value.isfinite().all()) for value in model.values())
            if not finite or (self.defence.excludes and self.streaks[device] >= EXCLUDE_AFTER):
                continue
            claimed = CLAIMED if attack and number == 0 else samples[number]
            files = {MODEL: self._write(f"from-{number}", model)}
            contributions.append(Contribution(device=device, files=files, samples=claimed, steps=1))
        if not contributions:
            return
        closed = ClosedRound(
            manifest=self.manifest, round=round_, draw=Draw(bytes(SECRET_BYTES)), enrolled=DEVICES,
            global_state=self.state, contributions=tuple(contributions), cohort=DEVICES, settings=self.defence.settings,
        )  # fmt: skip
        target = self.directory / f"round-{round_}"
        target.mkdir()
        try:
            aggregated = aggregate(closed, target)
        except InvalidInput:  # it overflows, or the reducer has too few updates: the round makes no model
            return
        self.state = aggregated.files
        clipped = {incident.device for incident in aggregated.incidents if incident.clipped}
        for contribution in contributions:
            device = contribution.device
            self.streaks[device] = self.streaks[device] + 1 if device in clipped else 0
            self.longest[device] = max(self.longest[device], self.streaks[device])


def _share(network: torch.nn.Module, side: _Side, pictures: Tensor, labels: Tensor) -> float:
    """Return the share of the pictures that the model takes for their labels."""
    with torch.no_grad():
        scores = functional_call(network, side.tensors(), (pictures,))
    return float((scores.argmax(1) == labels).float().mean())
