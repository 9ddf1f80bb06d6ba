from __future__ import annotations

import pytest
import torch

from moonfed.bundle.target import class_target
from moonfed.errors import TrainingFailed
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, tensor_specs
from tests.export.conftest import FEATURES, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import (
    Batch,
    Model,
    cross_entropy,
    descend,
    network_with,
    parameters_of,
    weights_of,
)
from tests.support.plan_rounds import ROUNDING, TOLERANCE, largest_difference, run_round, smooth_network

SMOOTH = smooth_network()


def eager_round(
    network: Network, model: Model, steps: list[Batch], variate: Model, own: Model
) -> tuple[Model, Model, list[float]]:
    """The model, c_i⁺ and the losses."""
    local, rate = network_with(network, model).train(), hyperparameters()["learning_rate"]

    def correct(network: Network) -> None:
        with torch.no_grad():
            for parameter, c, c_i in zip(parameters_of(network), variate, own, strict=True):
                parameter.sub_(rate * (c - c_i))

    losses = descend(local, steps, hyperparameters(), [cross_entropy], correct)
    start = parameters_of(network_with(network, model))
    new = [
        c_i - c + (w - w_i).detach() / (len(steps) * rate)
        for c, c_i, w, w_i in zip(variate, own, start, parameters_of(local), strict=True)
    ]
    return weights_of(local), new, losses


def random_variate(network: Network, seed: int) -> Model:
    generator = torch.Generator().manual_seed(seed)
    return [0.02 * torch.randn(parameter.shape, generator=generator) for parameter in parameters_of(network)]


def zeros(network: Network) -> Model:
    return [torch.zeros_like(parameter) for parameter in parameters_of(network)]


def test_two_rounds_with_momentum_equal_eager_training(new_plan: NewPlan) -> None:
    assert hyperparameters()["momentum"] == 0.9
    plan, first_steps, second_steps = (
        new_plan(SMOOTH, "scaffold"),
        batches(SMALL_IMAGE, 20, 8),
        batches(SMALL_IMAGE, 24, 8, seed=1),
    )
    first = run_round(plan, weights_of(SMOOTH), first_steps, hyperparameters())
    model, own, losses = eager_round(SMOOTH, weights_of(SMOOTH), first_steps, zeros(SMOOTH), zeros(SMOOTH))
    assert first.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(first.model, model) < TOLERANCE
    assert largest_difference(list(first.results["variate_change"]), own) < TOLERANCE
    assert largest_difference(list(first.results["device_variate"]), own) < TOLERANCE

    variate = random_variate(SMOOTH, 1)  # the coordinator's, to which other devices contributed
    received = {"variate": variate, "device_variate": first.results["device_variate"]}
    second = run_round(plan, first.model, second_steps, hyperparameters(), received=received)
    model, new, losses = eager_round(SMOOTH, model, second_steps, variate, own)
    assert second.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(second.model, model) < TOLERANCE
    assert largest_difference(list(second.results["device_variate"]), new) < TOLERANCE
    change = [after - before for after, before in zip(new, own, strict=True)]
    assert largest_difference(list(second.results["variate_change"]), change) < TOLERANCE
    uncorrected = run_round(plan, first.model, second_steps, hyperparameters())
    assert largest_difference(second.model, uncorrected.model) > 100 * TOLERANCE


def test_without_variates_it_is_fedavg(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 5, 8)
    scaffold = run_round(new_plan(SMOOTH, "scaffold"), weights_of(SMOOTH), steps, hyperparameters())
    fedavg = run_round(new_plan(SMOOTH, "fedavg"), weights_of(SMOOTH), steps, hyperparameters())
    assert largest_difference(scaffold.model, fedavg.model) < ROUNDING


def test_the_coordinators_variate_alone_counts_against_zeros(new_plan: NewPlan) -> None:
    plan, steps, variate = new_plan(SMOOTH, "scaffold"), batches(SMALL_IMAGE, 5, 8), random_variate(SMOOTH, 2)
    alone = run_round(plan, weights_of(SMOOTH), steps, hyperparameters(), received={"variate": variate})
    model, new, _ = eager_round(SMOOTH, weights_of(SMOOTH), steps, variate, zeros(SMOOTH))
    assert largest_difference(alone.model, model) < TOLERANCE
    assert largest_difference(list(alone.results["device_variate"]), new) < TOLERANCE


def test_without_a_step_the_devices_variate_stays(new_plan: NewPlan) -> None:
    own = random_variate(SMOOTH, 3)
    received = {"variate": random_variate(SMOOTH, 4), "device_variate": own}
    found = run_round(new_plan(SMOOTH, "scaffold"), weights_of(SMOOTH), [], hyperparameters(), received=received)
    assert largest_difference(list(found.results["device_variate"]), own) == 0
    assert largest_difference(list(found.results["variate_change"]), zeros(SMOOTH)) == 0


def test_statistics_and_frozen_parameters_have_no_variate(new_plan: NewPlan) -> None:
    frozen = build_network("mlp", FEATURES, class_target(10))
    frozen.encoder.requires_grad_(False)
    for network, sample_steps in ((SMOOTH, []), (frozen, batches(FEATURES, 3, 8))):
        trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
        specs = tuple(spec for spec in tensor_specs(network) if spec.name in trained)
        shapes = ExchangeShapes(tensors=specs, classes=10, width=1)
        found = run_round(new_plan(network, "scaffold"), weights_of(network), sample_steps, hyperparameters())
        for role, roles in (
            ("variate_change", METHODS["scaffold"]().uplink(shapes)),
            ("device_variate", METHODS["scaffold"]().device_state(shapes)),
        ):
            assert [tuple(tensor.shape) for tensor in found.results[role]] == [spec.shape for spec in roles[role]]
    assert len(specs) == 6
    assert METHODS["scaffold"]().downlink(shapes) == {"variate": specs}


def test_variates_of_another_model_are_rejected(new_plan: NewPlan) -> None:
    plan = new_plan(SMOOTH, "scaffold")
    with pytest.raises(TrainingFailed, match="variate has 13 tensors; the model trains 14"):
        plan.begin_round(weights_of(SMOOTH), [], {"variate": zeros(SMOOTH)[1:]}, hyperparameters())
