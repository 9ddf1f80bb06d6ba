"""The criterion of next-token prediction.

Legend: B samples, T tokens, V vocabulary.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import PADDING, InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.criteria.criterion import Criterion
from moonfed.tasks.next_token import NextToken


class TokenCriterion(Criterion):
    """Cross-entropy over tokens that are no padding."""

    compares_samples: ClassVar[bool] = True

    def __init__(self, task: NextToken, target: TargetSpec, sample: InputSpec) -> None:
        super().__init__()
        self.padding = PADDING

    def targets(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the tokens [B, T − 1] that follow."""
        return samples[:, 1:]

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over tokens of logits [B, T, V]."""
        known = (targets != self.padding).sum().clamp(min=1)
        return self.summed(outputs, targets) / known

    def summed(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy, summed over tokens."""
        logits = outputs[:, :-1].flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), ignore_index=self.padding, reduction="sum")

    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [3]: the mean cross-entropy of the batch's tokens times samples; the sum over tokens; tokens."""
        loss, known = self.summed(outputs, targets), (targets != self.padding).sum().to(outputs.dtype)
        return torch.stack([loss / known.clamp(min=1.0) * outputs.size(0), loss, known])

    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the perplexity."""
        return torch.exp(sums[1] / sums[2].clamp(min=1.0))

    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return probabilities [B, T, V]."""
        return torch.softmax(outputs, dim=2)
