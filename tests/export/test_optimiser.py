"""The optimisers within and across rounds, and clipping, compared with torch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from moonfed.edge_client.training.local_training import Samples, train_round
from moonfed.edge_client.training.rng import RoundSettings, epoch_batches
from moonfed.export.methods import METHODS
from moonfed.export.network import Network
from moonfed.export.optimiser import Adam, AdamW, Optimiser, Sgd, SgdOptimiser, clipped
from moonfed.export.plan_builder import compile_plan, plan_bytes
from moonfed.plan.interface import TorchScriptPlan, load_plan
from moonfed.plan.training_spec import TrainingSpec
from tests.export.conftest import SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import (
    Batch,
    Model,
    cross_entropy,
    descend,
    network_with,
    trained_eagerly,
    weights_of,
)
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
        [(data.inputs[index], data.targets[index]) for index in epoch_batches(SAMPLES, settings(round_), epoch)]
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
    data, plan, start = Samples(inputs=inputs, targets=labels), new_plan(network, "fedavg"), weights_of(network)
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
        optimiser.step([weight], given, {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}, None, None)
    torch.testing.assert_close(weight, expected.detach())


CHOSEN = [
    Sgd(learning_rate=0.05, gradient_clip_norm=0.5),
    # A small epsilon would magnify the rounding of gradients that are zero, as those of biases before BatchNorm.
    Adam(epsilon=0.001, weight_decay=0.01),
    Adam(epsilon=0.001, gradient_clip_value=0.01),
    AdamW(epsilon=0.001, gradient_clip_norm=0.1, gradient_clip_value=0.05),
]


@pytest.mark.parametrize("method", ["fedavg", "moon"])
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: chosen.name)
def test_rounds_with_any_optimiser_equal_eager_training(chosen: Optimiser, method: str, tmp_path: Path) -> None:
    network = smooth_network()
    inputs, labels = batches(SMALL_IMAGE, 1, SAMPLES)[0]
    values = {**chosen.hyperparameters(), **METHODS[method]().hyperparameters()}
    compiled = compile_plan(network, METHODS[method](), values, optimiser=chosen, model="tested")
    (tmp_path / "plan.pt").write_bytes(plan_bytes(compiled))
    plan, data = load_plan(tmp_path / "plan.pt", "cpu"), Samples(inputs=inputs, targets=labels)
    training = TrainingSpec(epochs=EPOCHS, batch_size=BATCH, hyperparameters=values)
    start = expected = weights_of(network)
    for round_ in (1, 2):  # the optimiser begins anew in each
        found = train_round(
            plan,
            data,
            model=start,
            previous_models=[],
            received={},
            settings=RoundSettings(training=training, seed=5, round=round_, device="device"),
        )
        steps = [batch for epoch in batches_of(data, round_) for batch in epoch]
        local = network_with(network, expected).train()
        descend(local, steps, values, [cross_entropy], optimiser=torch_optimiser(chosen, local))
        start, expected = found.results["model"], weights_of(local)
        assert largest_difference(start, expected) < TOLERANCE


def torch_optimiser(chosen: Optimiser, local: Network) -> torch.optim.Optimizer:
    parameters = list(local.parameters())
    match chosen:
        case Sgd():
            optimiser: torch.optim.Optimizer = torch.optim.SGD(
                parameters, chosen.learning_rate, chosen.momentum, weight_decay=chosen.weight_decay
            )
        case AdamW():
            optimiser = torch.optim.AdamW(
                parameters, chosen.learning_rate, eps=chosen.epsilon, weight_decay=chosen.weight_decay
            )
        case _:
            assert isinstance(chosen, Adam)
            optimiser = torch.optim.Adam(
                parameters, chosen.learning_rate, eps=chosen.epsilon, weight_decay=chosen.weight_decay
            )

    def clip(*_: object) -> None:
        if chosen.gradient_clip_value:
            torch.nn.utils.clip_grad_value_(parameters, chosen.gradient_clip_value)
        if chosen.gradient_clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters, chosen.gradient_clip_norm)

    optimiser.register_step_pre_hook(clip)
    return optimiser


@pytest.mark.parametrize("limit", [0.5, 100.0], ids=["clipped", "within"])
def test_gradients_are_clipped_as_torch_does(limit: float) -> None:
    gradients: list[torch.Tensor | None] = [torch.arange(6.0).reshape(2, 3), None, torch.full((2,), -3.0)]
    parameters = [torch.nn.Parameter(torch.zeros_like(one)) for one in gradients if one is not None]
    for parameter, gradient in zip(parameters, (one for one in gradients if one is not None), strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, limit)
    found = clipped(gradients, {"gradient_clip_norm": limit})
    assert found[1] is None
    assert clipped([None], {"gradient_clip_norm": limit, "gradient_clip_value": limit}) == [None]
    expected = [parameter.grad for parameter in parameters]
    torch.testing.assert_close([one for one in found if one is not None], expected)
