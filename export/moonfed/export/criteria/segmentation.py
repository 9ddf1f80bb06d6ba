"""The criterion of segmentation; `moonfed.tasks.segmentation` has the sources.

Legend: B samples, C classes, H height, W width.
"""

from typing import Final

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.criteria.criterion import Criterion
from moonfed.tasks.segmentation import Segmentation


class MaskCriterion(Criterion):
    """Cross-entropy per pixel, or 1 − mean Dice; pixels of no class are ignored."""

    dice: Final[bool]

    def __init__(self, task: Segmentation, target: TargetSpec, sample: InputSpec) -> None:
        super().__init__()
        self.dice = task.loss == "dice"
        self.classes = len(target.names)

    def targets(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Convert a mask [B, H, W] to int64; what is no class is −1."""
        mask = targets.to(torch.int64)
        return torch.where(mask < self.classes, mask, -1)

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of logits [B, C, H, W] and a mask [B, H, W]."""
        if self.dice:
            known_BHW = targets >= 0
            true_BCHW = F.one_hot(targets.clamp(min=0), self.classes).permute(0, 3, 1, 2) * known_BHW.unsqueeze(1)
            found_BCHW = torch.softmax(outputs, dim=1) * known_BHW.unsqueeze(1)
            both_C = (found_BCHW * true_BCHW).sum([0, 2, 3])
            sizes_C = found_BCHW.sum([0, 2, 3]) + true_BCHW.sum([0, 2, 3])
            return 1.0 - ((2.0 * both_C + 1.0) / (sizes_C + 1.0)).mean()
        return self.cross_entropy(outputs, targets)

    def cross_entropy(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over pixels that are not ignored."""
        known = (targets >= 0).sum().clamp(min=1)
        return F.cross_entropy(outputs, targets, ignore_index=-1, reduction="sum") / known

    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [1 + 2 · C]: the mean cross-entropy times samples; by class, intersections and unions."""
        loss = self.cross_entropy(outputs, targets)
        known_BHW, found_BHW = targets >= 0, outputs.argmax(1)
        hits: list[torch.Tensor] = []
        unions: list[torch.Tensor] = []
        for index in range(self.classes):
            is_true, is_found = targets == index, (found_BHW == index) & known_BHW
            hits.append((is_true & is_found).sum())
            unions.append((is_true | is_found).sum())
        counts = torch.stack(hits + unions).to(loss.dtype)
        return torch.cat([loss.unsqueeze(0) * outputs.size(0), counts])

    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the mean IoU over the classes that occur."""
        hits_C, unions_C = sums[1 : 1 + self.classes], sums[1 + self.classes :]
        occurring = (unions_C > 0).sum().clamp(min=1)
        return (hits_C / unions_C.clamp(min=1.0)).sum() / occurring

    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return probabilities [B, C, H, W]."""
        return torch.softmax(outputs, dim=1)
