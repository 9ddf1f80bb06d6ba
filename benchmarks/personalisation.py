"""Personal models on uneven parties: the accuracy on each party's own holdout.

    python -m benchmarks.personalisation FOLDER --output build/personalisation

FOLDER has torchvision's Fashion-MNIST. Ten parties get 20,000 samples as in MOON (Dirichlet, beta 0.1); each keeps a
fifth as its holdout. Every method trains the same small network with BatchNorm, the same number of epochs, from the
same weights, on the same split, with the devices' own code. SOLO takes a round's epochs at a time without an average.
Each finished trial is a file, so that an interrupted program goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MODEL, PERSONAL, PLAN_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.edge_client.training.local_training import RoundSettings, Samples, evaluate, train_round
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.partition import PartitionSettings, split
from moonfed.experiments.subsets import subset
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.plan.interface import Plan, load_plan
from moonfed.plan.tensors import read_tensors

PARTIES, BETA, SAMPLES, HOLDOUT = 10, 0.1, 20_000, 5  # every fifth sample is held out
ROUNDS, EPOCHS, BATCH, RATE = 20, 2, 32, 0.02
SEEDS = (0, 1, 2)
Tensors = list[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A method of personalisation, in the words of a bundle's options."""

    method: str = "fedavg"
    personal: str = ""
    settings: Mapping[str, float | int | str] = field(default_factory=dict)
    averages: bool = True


CONTENDERS: Mapping[str, Contender] = {
    "SOLO": Contender(averages=False),
    "FedAvg": Contender(),
    "FedPer": Contender(personal="head"),
    "FedRep": Contender(personal="head", settings={"personal_epochs": 1}),
    "FedBN": Contender(personal="batchnorm"),
    "LG-FedAvg": Contender(personal="encoder"),
    "Ditto": Contender(method="ditto", settings={"mu": 1.0}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A party's samples."""

    train: Samples
    holdout: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Accuracies of a trial on the parties' holdouts."""

    rounds: Sequence[float]  # the parties' mean, after each round
    parties: Sequence[float]  # after the last one
    pooled: float  # over all holdouts' samples together, after the last round


def network(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Two convolutions and a hidden layer, each normalised."""
    encoder = nn.Sequential(
        nn.Conv2d(shape[2], 16, 5),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
    )
    return encoder, nn.Identity(), nn.Linear(64, classes)


def parties(data: DataSet, seed: int) -> list[Party]:
    """Deal the samples to the parties."""
    found = []
    for indices in split(data, PartitionSettings(devices=PARTIES, beta=BETA, seed=seed)):
        shuffled = np.random.default_rng(seed).permutation(indices)
        held_out = np.arange(len(shuffled)) % HOLDOUT == 0
        parts = [shuffled[~held_out], shuffled[held_out]]
        train, holdout = (
            Samples(inputs=torch.from_numpy(data.inputs[part]), targets=torch.from_numpy(data.labels[part]))
            for part in parts
        )
        found.append(Party(train=train, holdout=holdout))
    return found


def build(contender: Contender, seed: int) -> Bundle:
    """Build a contender's bundle."""
    return build_bundle(
        BundleRecipe(
            name="personalisation",
            model="benchmarks.personalisation:network",
            input=InputSpec(kind="image", shape=(28, 28, 1)),
            target=class_target(10),
            method=contender.method,
            personal=contender.personal,
            settings={"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, **contender.settings},
            mean=(0.286,),
            deviation=(0.353,),
            seed=seed,
        )
    )


def run(contender: Contender, fleet: Sequence[Party], seed: int) -> Trial:
    """Train all rounds, and score every party with the model that it would use."""
    bundle = build(contender, seed)
    manifest = bundle.manifest
    with TemporaryDirectory(prefix="moonfed-") as root:
        for name, content in bundle.contents.items():
            Path(root, name).write_bytes(content)
        plan = load_plan(Path(root, PLAN_FILE), "cpu")
        initial = read_tensors(Path(root, "initial.safetensors"), manifest.tensors)
        first = read_tensors(Path(root, "personal.safetensors"), manifest.personal) if manifest.personal else []
    model, kept = initial, [first for _ in fleet]
    alone = [initial for _ in fleet]
    spec, means = manifest.training_at(1), list[float]()
    scores: list[tuple[float, int]] = []
    for round_ in range(1, ROUNDS + 1):
        results = []
        for number, party in enumerate(fleet):
            settings = RoundSettings(training=spec, seed=seed, round=round_, device=f"party-{number}")
            received = {PERSONAL: kept[number]} if manifest.personal else {}
            begun = model if contender.averages else alone[number]
            trained = train_round(
                plan, party.train, model=begun, previous_models=[], received=received, settings=settings
            )
            results.append(trained.results[MODEL])
            kept[number] = trained.results.get(PERSONAL, [])
        sizes = [len(party.train) for party in fleet]
        model = [sum_of(tensors, sizes) for tensors in zip(*results, strict=True)]
        alone = results
        scores = [
            accuracy(plan, model if contender.averages else alone[number], kept[number], party.holdout, bundle)
            for number, party in enumerate(fleet)
        ]
        means.append(statistics.fmean(score for score, _ in scores))
        print(f"  round {round_}: {means[-1]:.4f}", file=sys.stderr)
    samples = sum(count for _, count in scores)
    pooled = sum(score * count for score, count in scores) / samples
    return Trial(rounds=means, parties=[score for score, _ in scores], pooled=pooled)


def sum_of(tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """Return the mean of the parties' tensors, weighted by their samples."""
    total = sum(sizes)
    return torch.stack([tensor * (size / total) for tensor, size in zip(tensors, sizes, strict=True)]).sum(0)


def accuracy(plan: Plan, model: Tensors, own: Tensors, holdout: Samples, bundle: Bundle) -> tuple[float, int]:
    """Return the accuracy on a holdout, and its size."""
    manifest = bundle.manifest
    plan.begin_round(model, [], {PERSONAL: own} if manifest.personal else {}, manifest.training.hyperparameters)
    return evaluate(plan, holdout, 256).score, len(holdout)


def main() -> None:
    """Run what is missing, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("folder", type=Path, metavar="FOLDER")
    options.add_argument("--output", type=Path, default=Path("build/personalisation"))
    given = options.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data = subset(load_dataset("fashion-mnist", given.folder), train_samples=SAMPLES, test_samples=100, seed=0).train
    for seed in SEEDS:
        fleet = parties(data, seed)
        for name, contender in CONTENDERS.items():
            file = given.output / f"{name}-{seed}.json"
            if not file.exists():
                print(f"{name}, seed {seed}", file=sys.stderr)
                trial = run(contender, fleet, seed)
                document = {"rounds": trial.rounds, "parties": trial.parties, "pooled": trial.pooled}
                file.with_suffix(".new").write_text(json.dumps(document))
                file.with_suffix(".new").replace(file)
    for name in CONTENDERS:
        trials = [json.loads((given.output / f"{name}-{seed}.json").read_text()) for seed in SEEDS]
        last = [100 * trial["rounds"][-1] for trial in trials]
        worst = [100 * min(trial["parties"]) for trial in trials]
        pooled = 100 * statistics.fmean(trial["pooled"] for trial in trials)
        print(f"{name:<10} mean {statistics.fmean(last):.1f} ± {statistics.stdev(last):.1f}, worst party "
              f"{statistics.fmean(worst):.1f}, pooled {pooled:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
