"""The optimiser's momentum within and across rounds, compared with torch.optim.SGD."""

from __future__ import annotations

import pytest
import torch

from moonfed.edge_client.training.local_training import Samples, train_round
from moonfed.edge_client.training.rng import RoundSettings, epoch_batches
from moonfed.export.network import Network
from moonfed.export.optimiser import SgdOptimiser
from moonfed.plan.interface import TorchScriptPlan
from moonfed.plan.training_spec import TrainingSpec
from tests.export.conftest import SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import Batch, Model, trained_eagerly, weights_of
from tests.support.plan_rounds import TOLERANCE, largest_difference, smooth_network

EPOCHS, SAMPLES, BATCH = 3, 40, 8
VALUES = hyperparameters()
TRAINING = TrainingSpec(epochs=EPOCHS, batch_size=BATCH, hyperparameters=VALUES)


def settings(round_: int) -> RoundSettings:
    return RoundSettings(training=TRAINING, seed=5, round=round_, device="device")


def trained(plan: TorchScriptPlan, model: Model, data: Samples, round_: int) -> Model:
    found = train_round(plan, data, model=model, previous_models=[], received={}, settings=settings(round_))
    assert found.steps == EPOCHS * SAMPLES // BATCH
    return found.results["model"]


def batches_of(data: Samples, round_: int) -> list[list[Batch]]:
    """Return the batches of each epoch."""
    return [
        [(data.inputs[index], data.labels[index]) for index in epoch_batches(SAMPLES, settings(round_), epoch)]
        for epoch in range(1, EPOCHS + 1)
    ]


def eagerly(network: Network, model: Model, pieces: list[list[Batch]]) -> Model:
    """Train with a new torch.optim.SGD for each part."""
    for piece in pieces:
        model, _ = trained_eagerly(network, model, [], piece, VALUES)
    return model


def test_momentum_persists_over_epochs_and_resets_every_round(new_plan: NewPlan) -> None:
    network = smooth_network()
    inputs, labels = batches(SMALL_IMAGE, 1, SAMPLES)[0]
    data, plan, start = Samples(inputs=inputs, labels=labels), new_plan(network, "fedavg"), weights_of(network)
    first = trained(plan, start, data, 1)
    second = trained(plan, first, data, 2)
    rounds = [[batch for epoch in batches_of(data, round_) for batch in epoch] for round_ in (1, 2)]
    assert largest_difference(first, eagerly(network, start, rounds[:1])) < TOLERANCE
    assert largest_difference(second, eagerly(network, start, rounds)) < TOLERANCE
    # What else it could be is told apart: restarts with every epoch or step, or none between rounds.
    epochs = batches_of(data, 1)
    assert largest_difference(first, eagerly(network, start, epochs)) > 100 * TOLERANCE
    assert largest_difference(first, eagerly(network, start, [[batch] for batch in rounds[0]])) > 100 * TOLERANCE
    assert largest_difference(second, eagerly(network, start, [rounds[0] + rounds[1]])) > 100 * TOLERANCE


@pytest.mark.parametrize("weights", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("gradients", [torch.contiguous_format, torch.channels_last])
def test_a_gradient_may_have_another_memory_format_than_its_weights(
    weights: torch.memory_format, gradients: torch.memory_format
) -> None:
    generator = torch.Generator().manual_seed(7)
    start, *pulls = (torch.randn(4, 3, 2, 5, generator=generator) for _ in range(4))
    expected = torch.nn.Parameter(start.clone())
    plain = torch.optim.SGD([expected], lr=0.1, momentum=0.9, weight_decay=0.01)
    weight, optimiser = start.clone(memory_format=weights), SgdOptimiser()
    optimiser.begin([weight])
    for pull in pulls:
        expected.grad = pull.clone()
        plain.step()
        given: list[torch.Tensor | None] = [pull.clone(memory_format=gradients)]
        optimiser.step([weight], given, {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}, None)
    torch.testing.assert_close(weight, expected.detach())
