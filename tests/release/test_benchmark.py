"""Measurements of graphs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.release.benchmark import largest_difference
from tests.support.pet_models import graph

INPUTS = np.random.default_rng(0).integers(0, 256, (70, 4, 5, 3), dtype=np.uint8)  # more than one batch


def softmax(scale: float) -> npt.NDArray[np.float64]:
    scores = scale * INPUTS.mean(axis=(1, 2))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: npt.NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return found


def test_the_largest_difference_is_over_all_samples_and_classes() -> None:
    expected = np.abs(softmax(1.0) - softmax(0.5)).max()
    assert largest_difference(graph(1.0), graph(0.5), INPUTS) == pytest.approx(expected, rel=1e-4)
    assert largest_difference(graph(), graph(), INPUTS) == 0.0
