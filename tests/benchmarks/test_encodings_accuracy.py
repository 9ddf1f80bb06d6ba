"""The accuracy comparison of encodings at its smallest: every figure is present, and the control is perturbed."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from benchmarks.encodings_accuracy import measure_encodings_accuracy, perturb
from moonfed.bundle.files import read_bundle, write_bundle
from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.experiments.fleet import preparation
from tests.support.compiled import device_bundle
from tests.support.coordinator import make_bundle, model_values

pytestmark = pytest.mark.slow

CASES = ("float32", "weights a millionth off", "bfloat16 up", "int8 up", "rotated4 up", "rotated1 up")
NAMES = {
    **{f"digits, final accuracy, {case}": "" for case in CASES},
    "digits, float32: standard deviation of the last 10 rounds": "",
    **{f"digits, accuracy lost to {case}": "" for case in CASES[1:]},
    **{f"digits, accuracy lost to {case}: standard error": "" for case in CASES[1:]},
    **{f"digits, {case}: bytes / float32": "" for case in CASES[1:]},
    "digits, accuracy lost to int8 up": "at most 0.5",
    "digits, accuracy lost to rotated4 up": "at most 0.5",
    "digits, accuracy lost to rotated1 up": "at most 1",
    "digits, int8 up: bytes / float32": "at most 0.27",
    "fashion-mnist, final accuracy, float32": "",
}


@pytest.mark.usefixtures("forked_programs")
def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "build_bundle", device_bundle)
    figures = list(chain.from_iterable(measure_encodings_accuracy(None, seeds=1, rounds=1)))
    assert {figure.name: figure.target for figure in figures} == NAMES
    values = {figure.name: figure.value for figure in figures}
    plain, int8 = (values[f"digits, final accuracy, {case}"] for case in ("float32", "int8 up"))
    assert plain is not None
    assert int8 is not None
    assert values["digits, accuracy lost to int8 up"] == pytest.approx(plain - int8)
    for case, bits in (("int8", 8), ("rotated4", 4), ("rotated1", 1)):
        size = bits / 32 + 1 / 256  # a scale for 256 values
        assert values[f"digits, {case} up: bytes / float32"] == pytest.approx(size, abs=0.02)
    assert values["fashion-mnist, final accuracy, float32"] is None, "its files are elsewhere"


def test_perturbation_changes_each_weight_by_a_millionth(tmp_path: Path) -> None:
    start = np.random.default_rng(1).normal(size=23).astype(np.float32)
    write_bundle(tmp_path / "bundle", perturb(make_bundle(start=start), seed=3))
    moved = model_values(read_bundle(tmp_path / "bundle").contents[WEIGHTS_FILE])
    assert 1e-7 < np.abs(moved / start - 1).mean() < 1e-5
