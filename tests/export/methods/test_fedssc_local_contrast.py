"""FedSSC with local contrast: Khosla's loss on a batch."""

from __future__ import annotations

import pytest
import torch

from tests.export.conftest import SMALL_IMAGE, NewPlan, batches
from tests.support.eager_reference import moon_term, prototype_term, supervised_contrast_term, weights_of
from tests.support.plan_rounds import ROUNDING, largest_difference, other_models, run_round
from tests.support.prototype_plans import MU_GLOB, MU_MOON, SMOOTH, TAU, check_against_eager, prototypes, settings


def test_local_contrast_adds_khoslas_loss(new_plan: NewPlan) -> None:
    steps, models, (received, by_class) = batches(SMALL_IMAGE, 20, 8), other_models(SMOOTH, 1), prototypes()
    alone = [len(set(labels.tolist())) for _, labels in steps]
    assert min(alone) < 8, "some samples need a positive"
    found = run_round(
        new_plan(SMOOTH, "fedssc-local-contrast"), weights_of(SMOOTH), steps,
        settings("fedssc-local-contrast", local_contrast=0.8), previous=models, received=received,
    )  # fmt: skip
    terms = [
        moon_term(SMOOTH, weights_of(SMOOTH), models, MU_MOON, TAU),
        prototype_term(by_class, MU_GLOB, TAU),
        supervised_contrast_term(0.8, TAU),
    ]
    check_against_eager(found, steps, terms)


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_in_which_no_sample_has_a_positive_has_no_local_contrast(size: int, new_plan: NewPlan) -> None:
    inputs = batches(SMALL_IMAGE, 1, size)[0][0]
    steps = [(inputs, torch.arange(size))]
    with_it = run_round(
        new_plan(SMOOTH, "fedssc-local-contrast"), weights_of(SMOOTH), steps, settings("fedssc-local-contrast")
    )
    without = run_round(new_plan(SMOOTH, "fedssc"), weights_of(SMOOTH), steps, settings())
    assert largest_difference(with_it.model, without.model) < ROUNDING
    assert with_it.losses == pytest.approx(without.losses, abs=ROUNDING)
