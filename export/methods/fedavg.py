"""FedAvg: every device minimises its cross-entropy, and the coordinator averages.

    loss = CE(F_w(x), y)

Source: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, Communication-Efficient Learning of Deep Networks from
Decentralized Data (AISTATS 2017), algorithm 1.
Legend: B samples, C classes, D width of a representation, R references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812


class CrossEntropy(torch.nn.Module):
    """The mean cross-entropy of a batch; needs no references."""

    @torch.jit.export
    def reference_count(self, previous: int) -> int:
        """None, whatever is at hand."""
        return 0

    def forward(
        self,
        logits_BC: torch.Tensor,  # noqa: N803
        z_BD: torch.Tensor,  # noqa: N803
        labels_B: torch.Tensor,  # noqa: N803
        references_BRD: torch.Tensor,  # noqa: N803
        coefficients: dict[str, float],
    ) -> torch.Tensor:
        """The batch's loss, a scalar."""
        return F.cross_entropy(logits_BC, labels_B)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg:
    """FedAvg has no hyperparameters of its own."""

    previous_models: ClassVar[int] = 0
    frozen_encoders: ClassVar[int] = 0

    def coefficients(self) -> dict[str, float]:
        """None."""
        return {}

    def objective(self) -> torch.nn.Module:
        """Cross-entropy alone."""
        return CrossEntropy()
