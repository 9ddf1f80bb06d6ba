"""Pretrained weights bring the normalisation that they were trained with."""

from __future__ import annotations

import pytest
import torch

from moonfed.errors import InvalidInput
from moonfed.export.weights.pretrained import (
    Normalisation,
    PretrainedWeights,
    Resizing,
    common_normalisation,
    float_tensors,
)
from tests.support.refusals import refused

STATED = Normalisation(mean=(0.5, 0.25, 0.25), deviation=(0.5, 0.5, 0.5))


def weights(normalisation: Normalisation | None) -> PretrainedWeights:
    return PretrainedWeights(source="w.pth", sha256="0" * 64, tensors={}, normalisation=normalisation)


@pytest.mark.parametrize(
    ("mean", "deviation"), [(None, None), (STATED.mean, None), (None, (0.5,)), (STATED.mean, STATED.deviation)]
)
def test_the_stated_normalisation_is_used(mean: tuple[float, ...] | None, deviation: tuple[float, ...] | None) -> None:
    assert common_normalisation(weights(STATED), mean, deviation) == (STATED.mean, STATED.deviation)


def test_another_normalisation_is_refused_by_both_values() -> None:
    with refused(InvalidInput, "mean", "0.1", "0.5,0.25,0.25"):
        common_normalisation(weights(STATED), (0.1,), None)
    with refused(InvalidInput, "std", "0.5,0.5,1", "0.5,0.5,0.5"):
        common_normalisation(weights(STATED), None, (0.5, 0.5, 1.0))


def test_weights_that_state_none_leave_the_choice() -> None:
    assert common_normalisation(weights(None), (0.1,), None) == ((0.1,), None)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    with refused(InvalidInput, "weights", "w.pth"):
        float_tensors({"a": torch.tensor([1.0, value])}, "w.pth")


def test_counters_are_left_out_and_halves_widened() -> None:
    found = float_tensors({"a": torch.tensor([1.5], dtype=torch.bfloat16), "n": torch.tensor(3)}, "w.pth")
    assert found == {"a": torch.tensor([1.5])}
    assert found["a"].dtype == torch.float32
    with refused(InvalidInput, "weights", "w.pth"):
        float_tensors({"n": torch.tensor(3)}, "w.pth")


def test_a_line_says_in_what_resizing_differs() -> None:
    stated = Resizing(interpolation="bicubic", sides=(224, 224), cropped=True)
    assert stated.difference("w.pth", (64, 96, 3)) == (
        "w.pth was trained with images of 224x224, bicubic interpolation, cropped to the middle; "
        "devices resize whole images to 64x96, with bilinear interpolation"
    )
    for same in (Resizing(), Resizing(interpolation="bilinear", sides=(64, 96))):
        assert same.difference("w.pth", (64, 96, 3)) == ""
