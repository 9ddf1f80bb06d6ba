"""Prototypes that a method receives, and the class means that it returns."""

from __future__ import annotations

import pytest
import torch

from moonfed.errors import TrainingFailed
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes
from tests.export.conftest import SMALL_IMAGE, NewPlan, batches, hyperparameters
from tests.support.eager_reference import class_means, cross_entropy, prototype_term, weights_of
from tests.support.plan_rounds import NONE, TOLERANCE, WIDTH, largest_difference, no_draws, run_round
from tests.support.prototype_plans import MU_GLOB, SMOOTH, TAU, prototypes, settings


def test_prototypes_come_from_the_latest_round_that_began(new_plan: NewPlan) -> None:
    plan, steps = new_plan(SMOOTH, "fedssc"), batches(SMALL_IMAGE, 5, 8)
    first = run_round(plan, weights_of(SMOOTH), steps, settings())
    run_round(plan, weights_of(SMOOTH), steps, settings(), received=prototypes()[0])
    again = run_round(plan, weights_of(SMOOTH), steps, settings())
    assert largest_difference(first.model, again.model) == 0
    assert largest_difference(first.results["class_means"], again.results["class_means"]) == 0


def test_a_sample_without_prototype_counts_as_zero_in_the_mean(new_plan: NewPlan) -> None:
    plan, (inputs, labels) = new_plan(SMOOTH, "fedssc"), batches(SMALL_IMAGE, 1, 8)[0]
    received, by_class = prototypes(*[c for c in range(10) if c not in (int(labels[0]), 7)])
    plan.begin_round(weights_of(SMOOTH), [], received, settings())
    loss = float(plan.step(inputs, labels, NONE, no_draws(inputs)))
    z = SMOOTH.represent(inputs).detach()
    affected = [index for index in range(8) if int(labels[index]) in by_class]
    assert 0 < len(affected) < 8
    alone = [float(prototype_term(by_class, 1.0, TAU)(SMOOTH, inputs, z[[i]], labels[[i]])) for i in affected]
    expected = float(cross_entropy(SMOOTH, inputs, z, labels).detach()) + MU_GLOB * sum(alone) / 8
    assert loss == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("method", ["fedssc", "fedproc", "fedssc-two-stage", "fedssc-local-contrast"])
def test_class_means_are_of_the_trained_model_in_eval_mode_and_of_classes_with_enough_samples(
    method: str, new_plan: NewPlan
) -> None:
    inputs = torch.cat([inputs for inputs, _ in batches(SMALL_IMAGE, 4, 10, seed=8)])
    labels = torch.tensor([0] * 10 + [1] * 9 + [2] * 21)  # just enough, one too few, enough
    data = list(zip(torch.split(inputs, 16), torch.split(labels, 16), strict=True))  # the last batch is a partial one
    plan = new_plan(SMOOTH, method)
    found = run_round(
        plan, weights_of(SMOOTH), batches(SMALL_IMAGE, 4, 8), settings(method), received=prototypes()[0], data=data
    )
    assert largest_difference(found.model, weights_of(SMOOTH)) > 100 * TOLERANCE
    mask, means = found.results["class_means"]
    assert mask.tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    expected = class_means(SMOOTH, found.model, data, minimum=10)
    assert sorted(expected) == [0, 2]
    for class_, mean in expected.items():
        assert (means[class_] - mean).abs().max() < TOLERANCE
    assert means[1].abs().max() == means[3:].abs().max() == 0
    shapes = ExchangeShapes(tensors=(), classes=10, width=WIDTH)
    specs = METHODS[method]().uplink(shapes)["class_means"]
    assert [spec.name for spec in specs] == ["mask", "means"]
    assert [tuple(tensor.shape) for tensor in (mask, means)] == [spec.shape for spec in specs]
    names = [spec.name for spec in METHODS[method]().downlink(shapes)["prototypes"]]
    assert names == ["present", "prototypes"]


def test_the_minimum_of_samples_is_a_setting(new_plan: NewPlan) -> None:
    steps = [(batches(SMALL_IMAGE, 1, 6)[0][0], torch.tensor([0, 0, 0, 1, 1, 2]))]
    for minimum, mask in ((1, [1, 1, 1]), (2, [1, 1, 0]), (3, [1, 0, 0])):
        values = METHODS["fedssc"](prototype_minimum=minimum).hyperparameters()
        found = run_round(new_plan(SMOOTH, "fedssc"), weights_of(SMOOTH), steps, hyperparameters(**values))
        assert found.results["class_means"][0][:3].tolist() == mask


def test_a_round_without_survey_has_no_class_means(new_plan: NewPlan) -> None:
    plan = new_plan(SMOOTH, "fedssc")
    plan.begin_round(weights_of(SMOOTH), [], {}, settings())
    assert (plan.wants_survey(False), plan.wants_survey(True)) == (False, True)
    with pytest.raises(TrainingFailed, match="class means need a survey of all samples"):
        plan.end_round(1)
