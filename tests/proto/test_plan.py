"""Loading of plans."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from moonfed.errors import TrainingFailed, UnsafePlan
from moonfed.plan import load_plan
from tests.support.attack_plans import archive_of


def test_archives_that_are_not_plans_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "plan.pt"
    with pytest.raises(TrainingFailed, match="cannot be loaded on 'cpu'"):
        load_plan(path, "cpu")
    path.write_bytes(b"no archive")
    with pytest.raises(UnsafePlan, match="the plan is not a readable archive") as error:
        load_plan(path, "cpu")
    assert "\n" not in str(error.value)
    if not torch.cuda.is_available():
        with pytest.raises(TrainingFailed, match="cannot be loaded on 'cuda': torch finds no CUDA device here"):
            load_plan(path, "cuda")
    path.write_bytes(archive_of(torch.nn.Linear(1, 1)))
    with pytest.raises(TrainingFailed, match="no plan: it has no method 'begin_round'"):
        load_plan(path, "cpu")
