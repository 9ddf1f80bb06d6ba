"""Rounds of a plan as a device runs them, for tests of the methods' arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from moonfed.bundle.target import class_target
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.plan.interface import TorchScriptPlan
from tests.export.conftest import SMALL_IMAGE
from tests.support.eager_reference import Batch, Model

TOLERANCE = 1e-5
ROUNDING = 1e-6  # between two plans whose objectives write the same sum differently
NONE = torch.empty(0)
WIDTH = 32  # of the smooth network's representation


@dataclass(frozen=True, slots=True)
class Round:
    model: Model
    results: Mapping[str, Model]
    losses: list[float]
    metrics: Mapping[str, float]


def run_round(
    plan: TorchScriptPlan,
    model: Model,
    steps: Sequence[Batch],
    settings: Mapping[str, float],
    *,
    previous: Sequence[Model] = (),
    received: Mapping[str, Model] | None = None,
    data: Sequence[Batch] = (),
) -> Round:
    """References once per batch, then a step; `data` is what surveys see, by default the steps' batches."""
    plan.begin_round(model, previous, received or {}, settings, len(steps))
    _survey(plan, data or steps, 0)
    losses = []
    for inputs, labels in steps:
        references = plan.references(inputs, no_draws(inputs)) if plan.reference_count() else NONE
        loss = plan.step(inputs, labels, references, no_draws(inputs))
        assert loss.dim() == 0, "an objective returns a scalar"
        losses.append(float(loss))
    _survey(plan, data or steps, len(steps))
    results = plan.end_round(len(steps))
    return Round(results["model"], results, losses, plan.metrics())


def trained(
    plan: TorchScriptPlan, model: Model, previous: list[Model], steps: list[Batch], settings: dict[str, float]
) -> tuple[Model, list[float]]:
    """Run a round; return its model and its losses."""
    round_ = run_round(plan, model, steps, settings, previous=previous)
    return round_.model, round_.losses


def _survey(plan: TorchScriptPlan, data: Sequence[Batch], steps: int) -> None:
    if plan.wants_survey(steps > 0):
        for inputs, labels in data:
            plan.survey(inputs, labels, steps)


def no_draws(inputs: torch.Tensor) -> torch.Tensor:
    return torch.empty(len(inputs), 0)


def other_models(network: Network, count: int) -> list[Model]:
    """Models near the network's, like previous local models, with their own statistics."""
    generator = torch.Generator().manual_seed(11)
    models = []
    for _ in range(count):
        tensors = [tensor.detach() for tensor in exchanged_tensors(network).values()]
        models.append(
            [tensor + 0.05 * torch.rand(tensor.shape, generator=generator) * tensor.abs().mean() for tensor in tensors]
        )
    return models


def largest_difference(left: Model, right: Model) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@functools.cache
def smooth_network() -> Network:
    """Small, with BatchNorm, and without kinks; not to be changed.

    At a kink, such as a max-pool's near-tie, a gradient jumps for a change of the last bit, and so may two trainings
    that are the same but for rounding.
    """
    return build_network(
        "tests.support.plan_rounds:smooth", SMALL_IMAGE, class_target(10), mean=(0.5,), deviation=(0.25,), seed=3
    )


def smooth(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    encoder = nn.Sequential(
        nn.Conv2d(shape[2], 8, 5, stride=3),
        nn.BatchNorm2d(8),
        nn.Tanh(),
        nn.Conv2d(8, 16, 3),
        nn.BatchNorm2d(16),
        nn.Tanh(),
    )
    return encoder, nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, WIDTH)), nn.Linear(WIDTH, classes)
