"""Placement of a round's data by its size; samples move to the accelerator once."""

from __future__ import annotations

import psutil
import pytest
import torch

from moonfed.edge_client.training.data_placement import DataPlacement, Memory, Placement, free_memory
from tests.support.recording import numbered

CPU = torch.device("cpu")


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("size", "before", "host", "accelerator", "place"),
    [
        (50, 0, 0, 100, Placement.ACCELERATOR),  # half of it
        (51, 0, 200, 100, Placement.HOST),
        (20, 30, 0, 100, Placement.ACCELERATOR),  # half of it, together with what lies there
        (21, 30, 200, 100, Placement.HOST),
        (51, 0, 101, 100, Placement.STEP),
        (50, 0, 100, None, Placement.HOST),  # without an accelerator
        (51, 0, 101, None, Placement.STEP),
        (10**18, 0, None, None, Placement.HOST),  # nobody knows better
    ],
)
def test_a_place_follows_from_sizes(
    size: int, before: int, host: int | None, accelerator: int | None, place: Placement
) -> None:
    assert Memory(host=host, accelerator=accelerator).place(size, before) is place


def test_a_cpu_has_host_memory_only() -> None:
    found = free_memory(CPU)
    assert found.accelerator is None
    assert found.host is not None
    assert 0 < found.host < psutil.virtual_memory().total


def test_on_a_cpu_samples_stay_the_same_object() -> None:
    placement, data = DataPlacement(CPU), numbered(3)
    assert placement.place(data) is data


@needs_cuda
def test_samples_move_to_the_accelerator_once_and_again_when_they_change() -> None:
    placement, data = DataPlacement(torch.device("cuda")), numbered(1000)
    moved = placement.place(data)
    assert moved.device.type == "cuda"
    assert placement.place(data) is moved
    other = placement.place(numbered(500))
    assert len(other) == 500
    assert placement.place(data) is not moved
