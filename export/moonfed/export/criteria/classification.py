"""The criterion of classification; `moonfed.tasks.classification` has the sources.

Legend: B samples, C classes.
"""

from typing import Final

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.errors import InvalidInput
from moonfed.export.criteria.criterion import Criterion
from moonfed.tasks.classification import Classification


def cross_entropy() -> "ClassCriterion":
    """Return plain cross-entropy, for any number of classes."""
    return ClassCriterion(Classification(), class_target(2), InputSpec(kind="features", shape=(1,)))


class ClassCriterion(Criterion):
    """Cross-entropy or focal loss, with weights of classes and label smoothing."""

    focal: Final[bool]  # TorchScript compiles no branches that are not taken
    weighted: Final[bool]
    balanced: Final[bool]

    def __init__(self, task: Classification, target: TargetSpec, sample: InputSpec) -> None:
        super().__init__()
        weights, classes = task.weights, len(target.names)
        if weights and len(weights) != classes:
            raise InvalidInput(
                field="class_weights", value=task.class_weights, allowed=f"{classes} numbers, one for each class"
            )
        self.focal = task.loss == "focal"
        self.focus = task.focus
        self.smoothing = task.label_smoothing
        self.balanced = task.class_weights == "balanced"
        self.weighted = self.balanced or bool(weights)
        self.weights_C = torch.tensor(weights or [1.0] * classes)
        self.counts_C = torch.zeros(classes)

    def begin(self) -> None:
        """Forget the counts of the previous round."""
        if self.balanced:
            self.counts_C.zero_()
            self.weights_C.fill_(1.0)

    def wants_survey(self) -> bool:
        """Return whether classes are to be counted."""
        return self.balanced

    def survey(self, targets: torch.Tensor) -> None:
        """Count classes; a class's weight is n / (C · n_c), and 0 where there are none."""
        classes_C = torch.arange(self.counts_C.size(0), device=targets.device)
        self.counts_C.add_((targets.unsqueeze(1) == classes_C).sum(0))
        mean = self.counts_C.sum() / self.counts_C.size(0)
        self.weights_C.copy_(torch.where(self.counts_C > 0, mean / self.counts_C.clamp(min=1.0), 0.0))

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of logits [B, C] and labels [B]."""
        if self.focal:
            logarithms_BC = torch.log_softmax(outputs, dim=1)
            found_B = logarithms_BC.gather(1, targets.unsqueeze(1)).squeeze(1)
            losses_B = -torch.pow(1.0 - torch.exp(found_B), self.focus) * found_B
            if self.weighted:
                weights_B = self.weights_C.to(outputs.device)[targets]
                return (losses_B * weights_B).sum() / weights_B.sum()
            return losses_B.mean()
        if self.weighted:
            weights_C = self.weights_C.to(outputs.device)
            return F.cross_entropy(outputs, targets, weight=weights_C, label_smoothing=self.smoothing)
        return F.cross_entropy(outputs, targets, label_smoothing=self.smoothing)

    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [2]: the plain cross-entropy, and correct predictions."""
        loss = F.cross_entropy(outputs, targets, reduction="sum")
        return torch.stack([loss, (outputs.argmax(1) == targets).sum().to(loss.dtype)])

    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the accuracy."""
        return sums[1].to(torch.float64) / samples

    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return probabilities [B, C]."""
        return torch.softmax(outputs, dim=1)
