"""MOON contrasts the global model with up to k previous ones."""

from __future__ import annotations

import pytest
import torch

from moonfed.bundle.target import class_target
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan
from tests.export.conftest import IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import contrastive, network_with, trained_eagerly, weights_of
from tests.support.plan_rounds import NONE, TOLERANCE, largest_difference, no_draws, other_models, trained


def test_moon_without_a_previous_model_equals_fedavg(cnn: Network, new_plan: NewPlan) -> None:
    steps = batches(IMAGE, 5, 8)
    fedavg, _ = trained(new_plan(cnn, "fedavg"), weights_of(cnn), [], steps, hyperparameters())
    plan = new_plan(cnn, "moon", previous_models=2)
    moon, _ = trained(plan, weights_of(cnn), [], steps, hyperparameters(mu=5.0, tau=0.5))
    assert plan.reference_count() == 0
    assert largest_difference(moon, fedavg) == 0


@pytest.mark.parametrize(("given", "used"), [(1, 1), (2, 2), (3, 2), (5, 2)])
def test_moon_uses_up_to_k_available_previous_models(given: int, used: int, cnn: Network, new_plan: NewPlan) -> None:
    plan, models = new_plan(cnn, "moon", previous_models=2), other_models(cnn, given)
    steps, settings = batches(IMAGE, 3, 8), hyperparameters(mu=5.0, tau=0.5)
    model, _ = trained(plan, weights_of(cnn), models, steps, settings)
    assert plan.reference_count() == 1 + used
    expected, _ = trained_eagerly(cnn, weights_of(cnn), models[:used], steps, settings)
    assert largest_difference(model, expected) < TOLERANCE


def test_the_loss_distinguishes_the_global_from_the_previous_model(cnn: Network, new_plan: NewPlan) -> None:
    plan, (inputs, labels) = new_plan(cnn, "moon"), batches(IMAGE, 1, 8)[0]
    previous = weights_of(build_network("cnn", IMAGE, class_target(10), seed=99))
    plan.begin_round(weights_of(cnn), [previous], {}, hyperparameters(mu=5.0, tau=0.5))
    loss = float(plan.step(inputs, labels, NONE, no_draws(inputs)))
    z, z_previous = (network_with(cnn, model).represent(inputs).detach() for model in (weights_of(cnn), previous))
    cross_entropy = torch.nn.functional.cross_entropy(cnn.outputs(z), labels).detach()
    right = float(cross_entropy + 5.0 * contrastive(z, [z, z_previous], 0.5))
    swapped = float(cross_entropy + 5.0 * contrastive(z, [z_previous, z], 0.5))
    assert loss == pytest.approx(right, abs=TOLERANCE)
    assert abs(right - swapped) > 100 * TOLERANCE


def test_fedavg_has_no_frozen_copies_and_moon_has_k_plus_one(resnet: Network) -> None:
    size = sum(tensor.numel() for tensor in exchanged_tensors(resnet).values())
    head = sum(parameter.numel() for parameter in resnet.output_layer.parameters())
    for method, copies in ((METHODS["fedavg"](), 0), (METHODS["moon"](), 2), (METHODS["moon"](previous_models=3), 4)):
        module = compile_plan(resnet, method, hyperparameters(), model="tested")
        held = {id(tensor): tensor.numel() for tensor in module.state_dict(keep_vars=True).values()}
        counters = sum(1 for name, _ in module.named_buffers() if name.endswith("num_batches_tracked"))
        assert sum(held.values()) - counters == size + copies * (size - head)
