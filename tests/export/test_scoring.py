"""Results of predictions that are given, in one pass or many."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.bundle.target import class_target
from moonfed.control.held_out_score import HeldOutScore
from moonfed.data.data_set import DataSet
from moonfed.export import scoring
from moonfed.export.scoring import HeldOutData, Predictor
from tests.support.aggregation_rounds import make_manifest


class Given(Predictor):
    """A predictor whose inputs are rows of given probabilities."""

    def __init__(self, probabilities: npt.NDArray[np.float32]) -> None:
        self._probabilities = probabilities

    def predict(self, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        rows: npt.NDArray[np.float32] = self._probabilities[inputs[:, 0]]
        return rows


def score(probabilities: list[list[float]], labels: list[int]) -> HeldOutScore:
    given = np.array(probabilities, np.float32)
    classes = tuple(f"class {number}" for number in range(given.shape[1]))
    samples = DataSet(inputs=np.arange(len(labels))[:, None], targets=np.array(labels), target=class_target(classes))
    manifest = make_manifest(target=samples.target)
    return Given(given).held_out_score(HeldOutData(name="test", sha256="a" * 64, samples=samples), manifest)


def test_counts_by_class_and_predicted_class() -> None:
    found = score([[0.9, 0.1, 0], [0.6, 0.4, 0], [0.2, 0.8, 0], [0.7, 0.3, 0]], [0, 0, 1, 1])
    assert found.rows() == [(2, 0, 0), (1, 1, 0), (0, 0, 0)]
    assert (found.support, found.predicted, found.correct) == ((2, 2, 0), (3, 1, 0), (2, 1, 0))
    assert found.score == 0.75
    assert found.metrics["loss"] == pytest.approx(-np.log([0.9, 0.6, 0.8, 0.3]).mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("confidences", "right", "error"),
    [
        ([1.0, 1.0], [True, True], 0.0),
        ([1.0, 1.0], [True, False], 0.5),
        ([0.8, 0.8, 0.8, 0.8], [True, True, True, False], 0.05),  # one bin: 0.75 instead of 0.8
        ([0.55, 0.95], [False, True], (0.55 + 0.05) / 2),  # two bins, each of half of the samples
    ],
)
def test_the_calibration_error_is_the_gap_in_each_bin(
    confidences: list[float], right: list[bool], error: float
) -> None:
    found = score([[value, 1 - value] for value in confidences], [0 if one else 1 for one in right])
    assert found.calibration_error == pytest.approx(error, abs=1e-6)


def test_the_result_does_not_depend_on_the_size_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    probabilities = generator.dirichlet(np.ones(5), size=100).tolist()
    labels = generator.integers(0, 5, 100).tolist()
    whole = score(probabilities, labels)
    monkeypatch.setattr(scoring, "BATCH", 7)
    parts = score(probabilities, labels)
    assert parts.rows() == whole.rows()
    assert parts.metrics == pytest.approx(whole.metrics, rel=1e-9)
    assert parts.calibration_error == pytest.approx(whole.calibration_error, rel=1e-9)


def test_a_probability_of_zero_gives_a_finite_loss() -> None:
    assert np.isfinite(score([[1.0, 0.0]], [1]).metrics["loss"])


def test_the_matrix_of_too_many_classes_is_left_out() -> None:
    many = np.eye(300, dtype=np.float32).tolist()
    found = score(many, list(range(300)))
    assert found.confusion == ()
    assert found.correct == (1,) * 300
