"""FedSSC, FedProc and local contrast: the plan's computation, results and schedules."""

from __future__ import annotations

import pytest
import torch

from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from tests.export.conftest import SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import Model, moon_term, prototype_term, weights_of
from tests.support.plan_rounds import ROUNDING, WIDTH, largest_difference, other_models, run_round
from tests.support.prototype_plans import (
    MU_GLOB,
    MU_MOON,
    SMOOTH,
    TAU,
    check_against_eager,
    manifest,
    prototypes,
    settings,
)
from tests.support.refusals import refused


@pytest.mark.parametrize("previous", [1, 2])
def test_twenty_steps_with_a_class_without_prototype_equal_eager_training(previous: int, new_plan: NewPlan) -> None:
    steps, models, (received, by_class) = batches(SMALL_IMAGE, 20, 8), other_models(SMOOTH, previous), prototypes(3)
    assert any(3 in labels for _, labels in steps)
    plan = new_plan(SMOOTH, "fedssc", previous_models=previous)
    found = run_round(plan, weights_of(SMOOTH), steps, settings(), previous=models, received=received)
    assert plan.reference_count() == 1 + previous
    check_against_eager(
        found,
        steps,
        [moon_term(SMOOTH, weights_of(SMOOTH), models, MU_MOON, TAU), prototype_term(by_class, MU_GLOB, TAU)],
    )


def test_fedproc_is_cross_entropy_and_the_prototypes_alone(new_plan: NewPlan) -> None:
    steps, (received, by_class) = batches(SMALL_IMAGE, 20, 8), prototypes(3)
    plan = new_plan(SMOOTH, "fedproc")
    found = run_round(
        plan, weights_of(SMOOTH), steps, settings("fedproc"), previous=other_models(SMOOTH, 1), received=received
    )
    assert plan.reference_count() == 0
    check_against_eager(found, steps, [prototype_term(by_class, MU_GLOB, TAU)])


@pytest.mark.parametrize("received", [{}, {"prototypes": [torch.zeros(10), torch.zeros(10, WIDTH)]}])
def test_in_the_first_round_it_is_fedavg(received: dict[str, Model], new_plan: NewPlan) -> None:
    steps = batches(SMALL_IMAGE, 5, 8)
    fedssc = run_round(new_plan(SMOOTH, "fedssc"), weights_of(SMOOTH), steps, settings(), received=received)
    fedavg = run_round(new_plan(SMOOTH, "fedavg"), weights_of(SMOOTH), steps, hyperparameters())
    assert largest_difference(fedssc.model, fedavg.model) < ROUNDING


def test_mu_glob_falls_linearly_from_t_0_to_t() -> None:
    for method in (METHODS["fedssc"](), METHODS["fedproc"](), METHODS["fedssc-local-contrast"]()):
        found = [manifest(method).training_at(round_).hyperparameters["mu_glob"] for round_ in (1, 5, 6, 99, 100, 101)]
        slope = (1 - 0.0001) / 95
        assert found == pytest.approx([1, 1, 1 - slope, 0.0001 + slope, 0.0001, 0.0001], abs=1e-9)
    own = manifest(METHODS["fedssc"](mu_start=2.0, mu_end=1.0, decay_start=10, decay_end=20))
    assert [own.training_at(round_).hyperparameters["mu_glob"] for round_ in (10, 15, 20)] == [2.0, 1.5, 1.0]


def test_the_plan_follows_the_rounds_mu_glob(new_plan: NewPlan) -> None:
    plan, steps, (received, by_class) = new_plan(SMOOTH, "fedssc"), batches(SMALL_IMAGE, 3, 8), prototypes()
    for round_ in (5, 60, 100):
        values = manifest(METHODS["fedssc"]()).training_at(round_).hyperparameters
        found = run_round(plan, weights_of(SMOOTH), steps, values, received=received)
        check_against_eager(found, steps, [prototype_term(by_class, values["mu_glob"], TAU)])


def test_the_papers_settings_are_the_defaults() -> None:
    fedssc, fedproc = METHODS["fedssc"](), METHODS["fedproc"]()
    assert fedssc.hyperparameters() == {"tau": 0.5, "mu_moon": 5.0, "mu_glob": 1.0, "prototype_minimum": 10.0}
    assert (fedssc.previous_models, fedssc.frozen_encoders, fedssc.prototype_devices) == (1, 2, 1)
    assert (fedproc.previous_models, fedproc.frozen_encoders, fedproc.prototype_devices) == (0, 0, 0)
    assert METHODS["fedssc"](mu_moon=0.0).frozen_encoders == 0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tau": 0.0}, ("tau", 0.0)),
        ({"mu_end": -1.0}, ("mu_end", -1.0)),
        ({"decay_start": 100}, ("decay_end", 100)),
        ({"prototype_minimum": 0}, ("prototype_minimum", 0)),
        ({"prototype_devices": -1}, ("prototype_devices", -1)),
    ],
)
def test_settings_that_are_not_allowed(wrong: dict[str, float], named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        METHODS["fedssc"](**wrong)
