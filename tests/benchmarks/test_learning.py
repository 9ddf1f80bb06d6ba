"""What encodings cost of what is learned, at its smallest: every row is there, and the disturbed side is disturbed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning import disturbed, measure_learning
from moonfed.bundle import read_bundle, write_bundle
from moonfed.manifest import WEIGHTS_FILE
from tests.support.coordinator import make_bundle, model_values

SIDES = ("float32", "weights a millionth off", "bfloat16 up", "int8 up")
NAMES = {
    **{f"digits, final accuracy, {side}": "" for side in SIDES},
    "float32: standard deviation of the last 10 rounds": "",
    **{f"accuracy lost to {side}": "" for side in SIDES[1:3]},
    "accuracy lost to int8 up": "at most 0.5",
    **{f"accuracy lost to {side}: standard error": "" for side in SIDES[1:]},
    "bytes up, int8 / float32": "at most 0.27",
}


def test_the_rows() -> None:
    figures = measure_learning(seeds=1, rounds=1)
    assert {figure.name: figure.target for figure in figures} == NAMES
    values = {figure.name: figure.value for figure in figures}
    plain, int8 = (values[f"digits, final accuracy, {side}"] for side in ("float32", "int8 up"))
    assert plain is not None
    assert int8 is not None
    assert values["accuracy lost to int8 up"] == pytest.approx(plain - int8)
    assert values["bytes up, int8 / float32"] == pytest.approx(0.25 * (1 + 4 / 256), abs=0.01), "a scale for 256 values"


def test_a_millionth_is_added_to_or_taken_from_each_weight(tmp_path: Path) -> None:
    start = np.random.default_rng(1).normal(size=23).astype(np.float32)
    write_bundle(tmp_path / "bundle", disturbed(make_bundle(start=start), seed=3))
    moved = model_values(read_bundle(tmp_path / "bundle").contents[WEIGHTS_FILE])
    assert 1e-7 < np.abs(moved / start - 1).mean() < 1e-5
