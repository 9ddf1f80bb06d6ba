"""Two-stage FedSSC: the tensors that change in each stage, including BatchNorm's statistics."""

from __future__ import annotations

import pytest
import torch

from moonfed.export.methods import METHODS
from moonfed.export.network import Network, exchanged_tensors
from tests.export.conftest import SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import (
    Model,
    Term,
    cross_entropy,
    descend,
    moon_term,
    network_with,
    prototype_term,
    weights_of,
)
from tests.support.plan_rounds import TOLERANCE, largest_difference, other_models, run_round, smooth_network
from tests.support.prototype_plans import manifest, prototypes

SMOOTH = smooth_network()
METHOD = "fedssc-two-stage"


def settings(stage: float) -> dict[str, float]:
    return hyperparameters(**METHODS[METHOD]().hyperparameters()) | {"stage": stage}


def moved(network: Network, model: Model) -> set[str]:
    """The names of the tensors that are not the network's."""
    pairs = zip(exchanged_tensors(network).items(), model, strict=True)
    return {name for (name, before), after in pairs if not torch.equal(before, after)}


def output_layer(network: Network) -> set[str]:
    return {name for name in exchanged_tensors(network) if name.startswith("output_layer")}


@pytest.mark.parametrize(("previous", "shared"), [(0, True), (1, False), (1, True)])
def test_stage_one_moves_everything_but_the_output_layer(previous: int, shared: bool, new_plan: NewPlan) -> None:
    steps, models, (received, by_class) = batches(SMALL_IMAGE, 20, 8), other_models(SMOOTH, previous), prototypes()
    found = run_round(
        new_plan(SMOOTH, METHOD), weights_of(SMOOTH), steps, settings(1.0),
        previous=models, received=received if shared else {},
    )  # fmt: skip
    terms: list[Term] = [moon_term(SMOOTH, weights_of(SMOOTH), models, 5.0, 0.5)] if previous else []
    terms += [prototype_term(by_class, 1.0, 0.5)] if shared else []
    local = network_with(SMOOTH, weights_of(SMOOTH)).train()
    losses = descend(local, steps, settings(1.0), terms)
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE
    assert moved(SMOOTH, found.model) == set(exchanged_tensors(SMOOTH)) - output_layer(SMOOTH)


def test_with_nothing_to_compare_with_a_step_changes_nothing(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 3, 30)
    found = run_round(new_plan(SMOOTH, METHOD), weights_of(SMOOTH), steps, settings(1.0) | {"weight_decay": 0.1})
    assert found.losses == [0, 0, 0]
    assert moved(SMOOTH, found.model) == set()
    assert found.results["class_means"][0].sum() > 0, "the next round needs prototypes"


def test_stage_two_moves_the_output_layer_alone(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 20, 8)
    plan = new_plan(SMOOTH, METHOD)
    found = run_round(
        plan, weights_of(SMOOTH), steps, settings(2.0) | {"weight_decay": 0.1},
        previous=other_models(SMOOTH, 1), received=prototypes()[0],
    )  # fmt: skip
    assert plan.reference_count() == 0
    local = network_with(SMOOTH, weights_of(SMOOTH)).eval()
    for part in (local.encoder, local.projection_head):
        part.requires_grad_(False)
    losses = descend(local, steps, settings(2.0) | {"weight_decay": 0.1}, [cross_entropy])
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE
    assert moved(SMOOTH, found.model) == output_layer(SMOOTH)


def test_the_stage_changes_after_the_first_stages_rounds(new_plan: NewPlan) -> None:
    assert [manifest(METHODS[METHOD]()).training_at(r).hyperparameters["stage"] for r in (1, 90, 91, 100)] == [
        1,
        1,
        2,
        2,
    ]
    plan, steps = new_plan(SMOOTH, METHOD), batches(SMALL_IMAGE, 2, 8)
    short = manifest(METHODS[METHOD](first_stage_rounds=2))
    for round_, expected in ((2, set(exchanged_tensors(SMOOTH)) - output_layer(SMOOTH)), (3, output_layer(SMOOTH))):
        found = run_round(
            plan, weights_of(SMOOTH), steps, short.training_at(round_).hyperparameters, received=prototypes()[0]
        )
        assert moved(SMOOTH, found.model) == expected
