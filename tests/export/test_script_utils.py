"""Lists of tensors, some of them absent, in eager PyTorch and compiled."""

from __future__ import annotations

import pytest
import torch

from moonfed.export.script_utils import any_channels_last, copy_into, present, refilled


@torch.jit.script
def negated(tensors: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    return refilled(tensors, [-tensor for tensor in present(tensors)])


def test_tensors_return_to_the_places_that_they_were_taken_from() -> None:
    one, two = torch.ones(2), torch.full((3,), 2.0)
    found = negated([None, one, None, two])
    assert [None if tensor is None else tensor.tolist() for tensor in found] == [None, [-1, -1], None, [-2, -2, -2]]
    assert refilled([], present([])) == []


@pytest.mark.parametrize("sources", [[torch.zeros(2)], [torch.zeros(2), torch.zeros(1)]], ids=["number", "shape"])
def test_only_tensors_of_the_same_shapes_are_copied(sources: list[torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="the plan"):
        copy_into([torch.zeros(2), torch.zeros(3)], sources)


def test_a_kernel_of_both_layouts_is_not_channels_last() -> None:
    assert not any_channels_last([torch.zeros(2, 3, 1, 1).to(memory_format=torch.channels_last), torch.zeros(4)])
    assert any_channels_last([torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)])
