"""The benchmark of `Predictor`, with a few calls."""

from __future__ import annotations

import pytest

from benchmarks.predictor import ONNX, PLAN, measure_predictor

pytestmark = pytest.mark.slow


def test_both_figures_are_measured_with_what_they_are_added_to() -> None:
    figures = [figure for table in measure_predictor(calls=5) for figure in table]
    assert [figure.name for figure in figures][1::2] == [ONNX.name, PLAN.name]
    assert all(figure.value is not None for figure in figures)
