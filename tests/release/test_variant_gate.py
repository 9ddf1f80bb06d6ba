"""The gate's verdicts on given measurements."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from moonfed.errors import InvalidInput
from moonfed.export.scoring import Score
from moonfed.release.variant_gate import (
    Keep,
    Measurements,
    Verdict,
    judge,
    judge_optimised,
    read_keep,
    require_max_drop,
)
from moonfed.tasks.regression import Regression
from tests.support.refusals import refused


def figures(correct: int, size: int = 1000, one: float = 1.0, many: float = 10.0, load: float = 5.0) -> Measurements:
    """Make measurements of a model with `correct` of 200 samples right."""
    times = {"batch 1": one, "batch 32": many, "load": load}
    return Measurements(bytes=size, score=Score(metrics={"accuracy": correct / 200}), milliseconds=times)


FLOAT32 = figures(194)


def verdict(variant: Measurements, *, keep: Keep = "both", max_drop: float = 0.5) -> Verdict:
    return judge(variant, FLOAT32, FLOAT32, parent_name="float32", max_drop=max_drop, keep=keep)


def of_copy(copy: Measurements) -> Verdict:
    return judge_optimised(copy, FLOAT32, FLOAT32, parent_name="float32", max_drop=0.5)


@pytest.mark.parametrize(
    ("variant", "kept", "reason"),
    [
        (figures(194, size=250), True, "4.00 times smaller"),
        (figures(194, size=250, one=1.05, many=10.4, load=50), True, "smaller; loads 10.00 times slower"),
        (figures(194, size=250, many=10.6), False, "slower than float32; `--keep smaller` would keep it: 4.00 times"),
        (figures(194, size=250, one=2, many=25), False, "2.00 times slower at batch 1; 2.50 times slower at batch 32"),
        (figures(194, size=1500, many=5), False, "not smaller than float32: 1.50 times larger; 2.00 times faster at"),
        (figures(194, one=0.5), False, "not smaller than float32: 2.00 times faster at batch 1"),
        (figures(194), False, "not smaller than float32: no difference in size or speed"),
        (figures(194, size=995, one=0.97), False, "not smaller"),  # shorter names alone do not count
        (figures(193, size=250), True, "smaller"),  # one sample of 200 is half a point, not a little more
        (figures(192, size=250), False, r"accuracy falls by 1\.00 points; at most 0\.5 are allowed"),
        (figures(199, size=250), True, "smaller"),
    ],
)
def test_a_variant_is_kept_if_it_is_good_enough_and_smaller_and_not_slower(
    variant: Measurements, kept: bool, reason: str
) -> None:
    found = verdict(variant)
    assert found.kept is kept
    assert re.search(reason, found.reason)


@pytest.mark.parametrize(("rmse", "drop"), [(2.0, 0.0), (2.1, 5.0), (1.5, -25.0)])
def test_a_rising_error_counts_in_percent(rmse: float, drop: float) -> None:
    error, reference = (Score(metrics={"rmse": value}, metric=Regression.metric) for value in (rmse, 2.0))
    assert error.drop_from(reference) == drop
    measured = [replace(FLOAT32, score=each, bytes=size) for each, size in ((error, 250), (reference, 1000))]
    found = judge(measured[0], measured[1], measured[1], parent_name="float32", max_drop=1.0)
    assert found.kept == (drop <= 1.0)
    assert found.kept or found.reason == "rmse rises by 5.00 percent; at most 1 are allowed"


def test_incomparable_variants_are_dropped() -> None:
    unknown = replace(figures(194, size=250), score=Score(metrics={"accuracy": math.nan}))
    assert not verdict(unknown).kept


def test_size_alone_may_matter() -> None:
    slow = figures(194, size=250, one=2, many=25)
    assert not verdict(slow).kept
    found = verdict(slow, keep="smaller")
    assert (found.kept, found.reason.startswith("4.00 times smaller; 2.00 times slower")) == (True, True)
    assert not verdict(figures(194, one=0.5), keep="smaller").kept
    assert (read_keep("both"), read_keep("smaller")) == ("both", "smaller")
    with refused(InvalidInput, "keep", "faster"):
        read_keep("faster")


def test_an_optimised_copy_is_kept_if_it_is_faster_or_loads_faster() -> None:
    assert of_copy(figures(194, load=1)) == Verdict(kept=True, reason="loads 5.00 times faster")
    assert of_copy(figures(194, size=1500, many=5)).kept
    assert of_copy(figures(194, load=9)).reason.startswith("neither smaller nor faster than float32: loads 1.80 times")
    assert not of_copy(figures(192, load=1)).kept


def test_the_maximum_drop_is_configurable() -> None:
    assert verdict(figures(192, size=250), max_drop=1).kept
    assert not verdict(figures(193, size=250), max_drop=0).kept


def test_accuracy_is_compared_with_float32_and_size_with_the_parent() -> None:
    parent = figures(193, size=250)
    kept = judge(figures(193, size=200), parent, FLOAT32, parent_name="int8", max_drop=0.5)
    assert kept == Verdict(kept=True, reason="1.25 times smaller")
    same = judge(figures(193, size=250), parent, FLOAT32, parent_name="int8", max_drop=0.5)
    assert same.reason == "not smaller than int8: no difference in size or speed"
    assert not judge(figures(192, size=200), parent, FLOAT32, parent_name="int8", max_drop=0.5).kept


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_an_invalid_maximum_drop_is_rejected(value: float) -> None:
    with refused(InvalidInput, "max-drop"):
        require_max_drop(value)
