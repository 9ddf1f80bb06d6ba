from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.methods.fedprox import FedProx
from moonfed.export.model_zoo import build_network
from tests.export.conftest import FEATURES, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import (
    Batch,
    Model,
    cross_entropy,
    descend,
    full_gradient,
    network_with,
    proximal_term,
    weights_of,
)
from tests.support.plan_rounds import ROUNDING, TOLERANCE, largest_difference, run_round, smooth_network
from tests.support.refusals import refused

SMOOTH = smooth_network()
MU = 0.3  # larger than the paper's, so that the term shows


def settings(mu: float = MU, *, measured: bool = False) -> dict[str, float]:
    return hyperparameters(mu=mu, measure_inexactness=float(measured))


def test_twenty_steps_equal_eager_training_with_the_term_found_by_autograd(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 20, 8)
    found = run_round(new_plan(SMOOTH, "fedprox"), weights_of(SMOOTH), steps, settings())
    local = network_with(SMOOTH, weights_of(SMOOTH)).train()
    losses = descend(local, steps, settings(), [cross_entropy, proximal_term(SMOOTH, weights_of(SMOOTH), MU)])
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE
    without = run_round(new_plan(SMOOTH, "fedavg"), weights_of(SMOOTH), steps, hyperparameters())
    assert largest_difference(found.model, without.model) > 10 * TOLERANCE
    assert found.metrics == {}


def test_a_mu_of_zero_is_fedavg(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 5, 8)
    fedprox = run_round(new_plan(SMOOTH, "fedprox"), weights_of(SMOOTH), steps, settings(mu=0.0))
    fedavg = run_round(new_plan(SMOOTH, "fedavg"), weights_of(SMOOTH), steps, hyperparameters())
    assert largest_difference(fedprox.model, fedavg.model) < ROUNDING
    assert fedprox.losses == pytest.approx(fedavg.losses, abs=ROUNDING)


def test_the_term_pulls_towards_the_model_of_the_round_that_began_last(new_plan: NewPlan) -> None:
    plan, steps = new_plan(SMOOTH, "fedprox"), batches(SMALL_IMAGE, 4, 8)
    first = run_round(plan, weights_of(SMOOTH), steps, settings())
    second = run_round(plan, first.model, steps, settings())
    local = network_with(SMOOTH, first.model).train()
    descend(local, steps, settings(), [cross_entropy, proximal_term(SMOOTH, first.model, MU)])
    assert largest_difference(second.model, weights_of(local)) < TOLERANCE


def expected_inexactness(start: Model, end: Model, data: Sequence[Batch]) -> float:
    before = full_gradient(network_with(SMOOTH, start).eval(), data)
    after = full_gradient(network_with(SMOOTH, end).eval(), data, proximal_term(SMOOTH, start, MU))
    return float(after.norm() / before.norm())


def test_inexactness_is_the_ratio_of_the_full_gradients(new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 20, 8)
    data = [*steps[:3], (steps[3][0][:3], steps[3][1][:3])]  # the last batch is a partial one
    plan = new_plan(SMOOTH, "fedprox")
    found = run_round(plan, weights_of(SMOOTH), steps, settings(measured=True), data=data)
    expected = expected_inexactness(weights_of(SMOOTH), found.model, data)
    assert found.metrics == {"inexactness": pytest.approx(expected, rel=TOLERANCE)}
    again = run_round(plan, found.model, steps[:2], settings(measured=True), data=steps)
    expected = expected_inexactness(found.model, again.model, steps)
    assert again.metrics["inexactness"] == pytest.approx(expected, rel=TOLERANCE), "a round adds nothing to the next"


def test_measuring_inexactness_changes_nothing(new_plan: NewPlan) -> None:
    plan, steps = new_plan(SMOOTH, "fedprox"), batches(SMALL_IMAGE, 3, 8)
    measured = run_round(plan, weights_of(SMOOTH), steps, settings(measured=True))
    plain = run_round(plan, weights_of(SMOOTH), steps, settings())
    assert largest_difference(measured.model, plain.model) < ROUNDING


def test_a_better_solution_has_a_smaller_inexactness(new_plan: NewPlan) -> None:
    network = build_network("mlp", FEATURES, class_target(10))
    plan, data = new_plan(network, "fedprox"), batches(FEATURES, 1, 64)
    values = settings(measured=True) | {"momentum": 0.0}
    found = [
        run_round(plan, weights_of(network), data * steps, values, data=data).metrics["inexactness"]
        for steps in (1, 100, 400)
    ]
    assert 1 > found[0] > found[1] > found[2] > 0


def test_a_parameter_that_the_loss_does_not_depend_on_stays(new_plan: NewPlan) -> None:
    network = build_network("tests.support.residual_network:with_unused_layer", FEATURES, class_target(10))
    found = run_round(
        new_plan(network, "fedprox"), weights_of(network), batches(FEATURES, 5, 4),
        settings(measured=True) | {"weight_decay": 0.1},
    )  # fmt: skip
    names = list(network.state_dict())
    unused = sorted(names).index("encoder.unused.weight")
    assert torch.equal(found.model[unused], network.state_dict()["encoder.unused.weight"])
    assert 0 < found.metrics["inexactness"] < 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"mu": -0.1}, ("mu", -0.1)),
        ({"measure_inexactness": 2}, ("measure_inexactness", 2)),
    ],
)
def test_settings_that_are_not_allowed(wrong: dict[str, float], named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        FedProx(**wrong)  # type: ignore[arg-type]
