"""L2's steps equal eager training; the first one equals FedAvg's."""

from __future__ import annotations

import pytest
import torch

from moonfed.export.network import Network
from tests.export.conftest import IMAGE, SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import cross_entropy, descend, distance_term, network_with, weights_of
from tests.support.plan_rounds import (
    ROUNDING,
    TOLERANCE,
    largest_difference,
    run_round,
    smooth_network,
)

SMOOTH = smooth_network()


def test_twenty_steps_of_l2_equal_eager_training(new_plan: NewPlan) -> None:
    steps, values, start = batches(SMALL_IMAGE, 20, 8), hyperparameters(mu=0.5), weights_of(SMOOTH)
    plan = new_plan(SMOOTH, "l2")
    found = run_round(plan, start, steps, values)
    assert plan.reference_count() == 1
    local = network_with(SMOOTH, start).train()
    losses = descend(local, steps, values, [cross_entropy, distance_term(SMOOTH, start, 0.5)])
    assert found.losses == pytest.approx(losses, abs=TOLERANCE)
    assert largest_difference(found.model, weights_of(local)) < TOLERANCE


def test_l2s_first_step_is_fedavgs_because_the_distance_is_zero(cnn: Network, new_plan: NewPlan) -> None:
    steps = batches(IMAGE, 1, 8)
    l2 = run_round(new_plan(cnn, "l2"), weights_of(cnn), steps, hyperparameters(mu=10.0))
    fedavg = run_round(new_plan(cnn, "fedavg"), weights_of(cnn), steps, hyperparameters())
    assert l2.losses == pytest.approx(fedavg.losses, abs=ROUNDING)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in l2.model)
    assert largest_difference(l2.model, fedavg.model) < ROUNDING
