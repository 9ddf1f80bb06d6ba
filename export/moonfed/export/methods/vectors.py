"""Lists of tensors as vectors, for scripts; one call for the whole list is one kernel on an accelerator.

Eager PyTorch calls these lists tuples, TorchScript calls them lists.
"""

import torch


def difference(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    """left − right."""
    found: list[torch.Tensor] = torch._foreach_sub(left, right)  # type: ignore[assignment]
    return found


def squared_norm(vector: list[torch.Tensor]) -> torch.Tensor:
    """‖·‖² of all tensors together, a scalar."""
    norms: list[torch.Tensor] = torch._foreach_norm(vector)  # type: ignore[assignment]
    return torch.stack(norms).square().sum()
