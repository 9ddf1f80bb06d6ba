"""The first steps of a round, which train personal tensors alone; the others train the shared ones alone.

Source: Collins, Hassani, Mokhtari, Shakkottai, Exploiting Shared Representations for Personalized Federated Learning
(ICML 2021), algorithm 1. Both skip the other's steps on the accelerator, where a CUDA graph can replay them.
"""

from typing import Optional

import torch

from moonfed.export.script_utils import rounded


class PersonalTurn(torch.nn.Module):
    """The turns of personal and shared tensors, by a step's place in the round."""

    def __init__(self) -> None:
        super().__init__()
        self.first = 0  # steps
        self.taken = torch.empty(0)

    def begin(self, share: float, steps: int, device: torch.device) -> None:
        """Begin a round of so many steps, a share of which are personal."""
        self.first = rounded(share * steps)
        self.taken = torch.zeros([], device=device)

    def skips(
        self,
        skip: Optional[torch.Tensor],  # noqa: UP045 - of the script
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return whether the personal and whether the shared tensors skip the next step, scalars that are 1 or 0.

        `skip`: a scalar that is 1 if both do.
        """
        shared = (self.taken < self.first).to(torch.float32)
        own = 1.0 - shared
        self.taken.add_(1.0)
        if skip is not None:
            return torch.maximum(own, skip), torch.maximum(shared, skip)
        return own, shared
