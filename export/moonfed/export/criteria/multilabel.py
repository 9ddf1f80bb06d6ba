"""The criterion of multi-label classification.

Legend: B samples, L labels.
"""

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.criteria.criterion import Criterion
from moonfed.tasks.multilabel import Multilabel


class LabelCriterion(Criterion):
    """Binary cross-entropy of the known labels."""

    def __init__(self, task: Multilabel, target: TargetSpec, sample: InputSpec) -> None:
        super().__init__()
        self.labels = len(target.names)

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over known labels of logits [B, L] and labels [B, L]."""
        known_BL = (targets < 2).to(torch.float32)
        losses_BL = F.binary_cross_entropy_with_logits(outputs, (targets == 1).to(torch.float32), reduction="none")
        return (losses_BL * known_BL).sum() / known_BL.sum().clamp(min=1.0)

    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [1 + 3 · L]: the loss times the samples; true positives, false positives, false negatives by label."""
        mean: torch.Tensor = self(outputs, targets)
        loss = mean.unsqueeze(0) * outputs.size(0)
        found_BL, true_BL, known_BL = outputs >= 0.0, targets == 1, targets < 2
        hits_L = (found_BL & true_BL).sum(0)
        wrong_L = (found_BL & ~true_BL & known_BL).sum(0)
        missed_L = (~found_BL & true_BL).sum(0)
        return torch.cat([loss, torch.cat([hits_L, wrong_L, missed_L]).to(loss.dtype)])

    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return macro F1."""
        counts_3L = sums[1:].view(3, -1)
        both_L = 2.0 * counts_3L[0] + counts_3L[1] + counts_3L[2]
        return (2.0 * counts_3L[0] / both_L.clamp(min=1.0)).mean()

    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return probabilities [B, L]."""
        return torch.sigmoid(outputs)
