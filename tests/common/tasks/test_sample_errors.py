"""Errors by sample, and the figures that they make: those of the tasks' own scorers, where these are means."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from moonfed.bundle.target import UNKNOWN, TargetSpec
from moonfed.tasks.figure import figure
from moonfed.tasks.next_token import NextToken
from moonfed.tasks.regression import Regression
from moonfed.tasks.sample_errors import sample_errors

NOTHING = np.zeros((2, 1))


def test_a_class_is_right_or_wrong() -> None:
    errors = sample_errors("class", np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]), NOTHING)
    assert errors.tolist() == [0.0, 1.0]
    assert figure("class", 0.25) == 0.75


def test_unknown_labels_and_ignored_pixels_do_not_count() -> None:
    found = sample_errors(
        "labels", np.array([[0.9, 0.9, 0.1], [0.9] * 3]), np.array([[1, 0, UNKNOWN], [UNKNOWN] * 3]), NOTHING
    )
    assert found.tolist() == [0.5, 0.0]
    outputs = np.stack([np.zeros((2, 2, 2)), np.ones((2, 2, 2))], axis=1)  # the second class everywhere
    masks = np.array([[[1, 0], [UNKNOWN, 0]], [[UNKNOWN] * 2] * 2])
    assert sample_errors("mask", outputs, masks, NOTHING) == pytest.approx([2 / 3, 0.0])


@pytest.mark.parametrize("shape", [(3,), (4, 2)])
def test_values_make_the_rmse_of_the_task(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    outputs, targets = (generator.normal(size=(50, *shape)).astype(np.float32) for _ in range(2))
    target = TargetSpec(kind="values", names=tuple(map(str, range(shape[-1]))), shape=shape)
    scorer = Regression().scorer(target)
    scorer.add(outputs, targets, NOTHING)
    error = float(sample_errors("values", outputs, targets, NOTHING).mean(dtype=np.float64))
    assert figure("values", error) == pytest.approx(scorer.metrics()["rmse"], rel=1e-6)


def test_tokens_make_the_perplexity_of_the_task() -> None:
    generator = np.random.default_rng(0)
    outputs = generator.dirichlet(np.ones(5), size=(20, 6)).astype(np.float32)
    tokens = generator.integers(1, 5, (20, 6))
    scorer = NextToken().scorer(TargetSpec(kind="next", shape=(0,)))
    scorer.add(outputs, NOTHING, tokens)
    error = float(sample_errors("next", outputs, NOTHING, tokens).mean(dtype=np.float64))
    assert figure("next", error) == pytest.approx(scorer.metrics()["perplexity"], rel=1e-5)
    padded = np.where(np.arange(6) > 2, 0, tokens)
    first = -np.log(outputs[np.arange(20)[:, None], np.arange(2), tokens[:, 1:3]].astype(np.float64)).mean(axis=1)
    assert sample_errors("next", outputs, NOTHING, padded) == pytest.approx(first, rel=1e-5)


def test_scores_and_huge_errors_are_figures() -> None:
    assert sample_errors("none", np.array([0.5, 2.0]), NOTHING, NOTHING).tolist() == [0.5, 2.0]
    assert figure("none", 1.25) == 1.25
    assert figure("next", 1e9) == exp(700)
