"""Loading of plans."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from moonfed.errors import TrainingFailed, UnsafePlan
from moonfed.plan.interface import METHODS, allocate, load_plan
from tests.support.attack_plans import archive_of
from tests.support.refusals import refused


def test_archives_that_are_not_plans_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "plan.pt"
    with pytest.raises(TrainingFailed, match="cannot be loaded on 'cpu'"):
        load_plan(path, "cpu")
    path.write_bytes(b"no archive")
    with refused(UnsafePlan, "archive") as error:
        load_plan(path, "cpu")
    assert "\n" not in str(error.value)
    if not torch.cuda.is_available():
        with refused(TrainingFailed, "device", "cuda"):
            load_plan(path, "cuda")
    path.write_bytes(archive_of(torch.nn.Linear(1, 1)))
    with refused(TrainingFailed, "method", "begin_round"):
        load_plan(path, "cpu")


def test_expanded_zeros_are_allocated_and_stay_the_same_tensors() -> None:
    module = torch.nn.Conv2d(2, 3, 3)
    module.weight.data = torch.zeros(1).expand(3, 2, 3, 3)
    weight = module.weight
    allocate(module, "channels-last")
    assert module.weight is weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    weight.data[0, 0, 0, 0] = 1.0
    assert weight.sum() == 1.0, "the elements no longer share their memory"


class _Expanded(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(1).expand(size))
        for method in METHODS:
            setattr(self, method, 0)

    def forward(self) -> torch.Tensor:
        return self.values  # type: ignore[return-value]


def test_a_plan_whose_tensors_exceed_the_memory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "plan.pt").write_bytes(archive_of(_Expanded(1 << 50)))
    with refused(TrainingFailed, "tensors"):
        load_plan(tmp_path / "plan.pt", "cpu")
