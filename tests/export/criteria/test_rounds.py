"""One round of each task with each of four methods, against an eager loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.export.criteria.criterion import build_criterion
from moonfed.export.methods import METHODS
from moonfed.export.models.segmentation import PooledBottleneck
from moonfed.export.models.sequences import EachStep, LastKnown, TokenStates
from moonfed.export.network import DenseNetwork, Network
from moonfed.export.preprocessing import build_preprocessing
from moonfed.export.self_checks import check_targets, random_samples
from moonfed.plan.interface import load_torchscript_plan
from moonfed.tasks import TASKS
from tests.export.conftest import hyperparameters
from tests.support.compiled import cached_plan
from tests.support.eager_reference import (
    Batch,
    Term,
    descend,
    moon_term,
    network_with,
    parameters_of,
    proximal_term,
    weights_of,
)
from tests.support.plan_rounds import TOLERANCE, largest_difference, other_models, run_round

ROW = InputSpec(kind="features", shape=(6,))
IMAGE = InputSpec(kind="image", shape=(16, 18, 2))
TOKENS = InputSpec(kind="tokens", shape=(7,), vocabulary=("", "a", "b", "c", "d"))
STEPS, BATCH = 4, 6


class Smooth(nn.Module):
    """Maps without kinks, at which a gradient would depend on rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1)

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        maps = torch.tanh(self.first(images))
        return [maps, torch.tanh(self.second(maps))]


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Conv2d(5, 3, 1)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self.classify(features[1])
        return logits


def rows(outputs: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 5), nn.Linear(5, outputs)


@dataclass(frozen=True)
class Case:
    sample: InputSpec
    target: TargetSpec
    parts: Callable[[], tuple[nn.Module, nn.Module, nn.Module]]
    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # of outputs, targets and samples

    def network(self, task: str) -> Network:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            kind = DenseNetwork if TASKS[task].dense else Network
            return kind(build_preprocessing(self.sample), *self.parts())

    def steps(self) -> list[Batch]:
        inputs = torch.from_numpy(random_samples(self.sample, STEPS * BATCH))
        targets = check_targets(self.target, STEPS * BATCH)
        if self.target.kind in ("labels", "mask"):
            targets[:, :1] = 255  # of which nothing is known
        return list(zip(inputs.split(BATCH), targets.split(BATCH), strict=True))  # type: ignore[no-untyped-call]


def known_labels(outputs: torch.Tensor, targets: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    known = targets != 255
    return F.binary_cross_entropy(torch.sigmoid(outputs[known]), targets[known].float())


def known_pixels(outputs: torch.Tensor, targets: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.permute(0, 2, 3, 1)[targets != 255], targets[targets != 255].long())


def known_tokens(outputs: torch.Tensor, _: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    losses = [
        -torch.log_softmax(outputs[row, place], 0)[tokens[row, place + 1]]
        for row in range(len(tokens))
        for place in range(tokens.size(1) - 1)
        if tokens[row, place + 1] != 0
    ]
    return torch.stack(losses).mean()


CASES = {
    "classification": Case(ROW, class_target(3), lambda: rows(3), lambda o, t, _: F.cross_entropy(o, t)),
    "multilabel": Case(
        ROW, TargetSpec(kind="labels", names=("x", "y", "z"), shape=(3,)), lambda: rows(3), known_labels
    ),
    "regression": Case(
        ROW,
        TargetSpec(kind="values", names=("u", "v"), shape=(4, 2), mean=(5.0, -2.0), deviation=(2.0, 0.5)),
        lambda: rows(8),
        lambda o, t, _: (o.view(-1, 4, 2) - (t - torch.tensor([5.0, -2.0])) / torch.tensor([2.0, 0.5])).square().mean(),
    ),
    "segmentation": Case(
        IMAGE,
        TargetSpec(kind="mask", names=("a", "b", "c"), shape=(16, 18)),
        lambda: (Smooth(), PooledBottleneck(), Pixels()),
        known_pixels,
    ),
    "anomaly-detection": Case(
        ROW, TargetSpec(kind="none", shape=(0,)), lambda: rows(6), lambda o, _, inputs: (o - inputs).square().mean()
    ),
    "next-token": Case(
        TOKENS,
        TargetSpec(kind="next", shape=(0,)),
        lambda: (TokenStates(nn.GRU(64, 64, batch_first=True), 5), LastKnown(), EachStep(5)),
        known_tokens,
    ),
}


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", "moon"])
@pytest.mark.parametrize("task", CASES)
def test_a_round_equals_an_eager_one(task: str, method: str, tmp_path: Path) -> None:
    case, chosen = CASES[task], METHODS[method]()
    network, steps = case.network(task), case.steps()
    settings = hyperparameters(**chosen.hyperparameters())
    criterion = build_criterion(TASKS[task](), case.target, case.sample)
    (tmp_path / "plan.pt").write_bytes(cached_plan(network, chosen, settings, criterion=criterion))
    model, previous = weights_of(network), other_models(network, 1)
    generator = torch.Generator().manual_seed(5)
    variates = [
        [0.02 * torch.randn(parameter.shape, generator=generator) for parameter in parameters_of(network)]
        for _ in range(2)
    ]
    received = {"variate": variates[0], "device_variate": variates[1]} if method == "scaffold" else {}
    found = run_round(
        load_torchscript_plan(tmp_path / "plan.pt", "cpu"), model, steps, settings, previous=previous, received=received
    )

    def loss(local: Network, inputs: torch.Tensor, z: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return case.loss(local(inputs), targets, inputs)

    def correct(local: Network) -> None:
        with torch.no_grad():
            for parameter, c, c_i in zip(parameters_of(local), *variates, strict=True):
                parameter.sub_(settings["learning_rate"] * (c - c_i))

    terms: list[Term] = [loss]
    if method == "fedprox":
        terms.append(proximal_term(network, model, settings["mu"]))
    if method == "moon":
        terms.append(moon_term(network, model, previous, settings["mu"], settings["tau"]))
    local = network_with(network, model).train()
    losses = descend(local, steps, settings, terms, correct if method == "scaffold" else lambda _: None)
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE
    assert largest_difference(found.model, model) > 10 * TOLERANCE
