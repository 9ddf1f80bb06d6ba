"""The compiled plan, as a device loads it, against the same training written in eager PyTorch."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from export.methods import METHODS
from export.models import build_network
from export.network import Network, exchanged_tensors, tensor_specs
from export.plan import compile_plan, plan_bytes
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.manifest import InputSpec
from moonfed.plan import TorchScriptPlan, load_plan
from tests.export.conftest import FEATURES, IMAGE, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.export.eager_reference import Batch, Model, contrastive, network_with, trained_eagerly, weights_of

TOLERANCE = 1e-5
NONE = torch.empty(0)


def trained(
    plan: TorchScriptPlan, model: Model, previous: list[Model], steps: list[Batch], settings: dict[str, float]
) -> tuple[Model, list[float]]:
    """One round as a device runs it: references once per batch, then steps."""
    plan.begin_round(model, previous, settings)
    losses = []
    for inputs, labels in steps:
        references = plan.references(inputs) if plan.reference_count() else NONE
        losses.append(float(plan.step(inputs, labels, references)))
    return plan.end_round(), losses


def other_models(network: Network, count: int) -> list[Model]:
    """Models near the network's, as previous local models are, with statistics of their own."""
    generator = torch.Generator().manual_seed(11)
    models = []
    for _ in range(count):
        tensors = exchanged_tensors(network).items()
        models.append(
            [
                tensor.detach() + 0.05 * torch.rand(tensor.shape, generator=generator) * tensor.detach().abs().mean()
                for _, tensor in tensors
            ]
        )
    return models


def largest_difference(left: Model, right: Model) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(("method", "previous"), [("fedavg", 0), ("moon", 1), ("moon", 3)])
@pytest.mark.parametrize("kind", ["cnn", "resnet"])
def test_twenty_steps_equal_eager_training(
    kind: str, method: str, previous: int, request: pytest.FixtureRequest, new_plan: NewPlan
) -> None:
    network: Network = request.getfixturevalue(kind)
    sample, size = (IMAGE, 16) if kind == "cnn" else (SMALL_IMAGE, 4)
    plan = new_plan(network, method, **({"previous_models": previous} if previous else {}))
    settings = hyperparameters(**({"mu": 5.0, "tau": 0.5} if method == "moon" else {}))
    models = other_models(network, previous)
    steps = batches(sample, 20, size)
    model, losses = trained(plan, weights_of(network), models, steps, settings)
    expected, expected_losses = trained_eagerly(network, weights_of(network), models, steps, settings)
    assert losses == pytest.approx(expected_losses, abs=1e-4)
    assert largest_difference(model, expected) < TOLERANCE
    assert largest_difference(model, weights_of(network)) > 100 * TOLERANCE
