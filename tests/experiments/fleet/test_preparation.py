"""Preparation rejects impossible recipes before it writes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moonfed.errors import InvalidInput
from moonfed.experiments.fleet.run import run_simulation
from tests.support.refusals import refused
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"settings": {"epochs": 1, "batch_size": 32}, "parties": 3, "rounds": 2, "seed": 1}


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with refused(InvalidInput, "output"):
        run_simulation(make_simulation(dataset="wine", model="mlp", **QUICK), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "cnn"}, "model is 'cnn', input.kind 'features'"),
        ({"model": "mlp", "parties": 100}, "parties is 100"),
        ({"model": "mlp", "train_samples": 143}, "train_samples is 143"),
        ({"model": "mlp", "method": "ditto"}, "has personal tensors"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_rejected_before_anything_is_written(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        run_simulation(make_simulation(dataset="wine", **(QUICK | keys)), tmp_path / "a")
    assert not (tmp_path / "a").exists()
