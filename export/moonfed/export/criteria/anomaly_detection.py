"""The criterion of anomaly detection.

Legend: B samples, F numbers of a sample.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.criteria.criterion import Criterion
from moonfed.tasks.anomaly_detection import AnomalyDetection


class ReconstructionCriterion(Criterion):
    """The mean squared error of the reproduced sample, after preprocessing."""

    compares_samples: ClassVar[bool] = True

    def __init__(self, task: AnomalyDetection, target: TargetSpec, sample: InputSpec) -> None:
        super().__init__()

    def targets(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the samples [B, F]."""
        return samples.flatten(1)

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss."""
        return F.mse_loss(outputs.flatten(1), targets)

    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [1]: the loss, summed over samples."""
        loss: torch.Tensor = self(outputs, targets)
        return loss.unsqueeze(0) * outputs.size(0)

    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the mean score."""
        return sums[0].to(torch.float64) / samples

    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return scores [B]: the error by sample."""
        return (outputs.flatten(1) - samples.flatten(1)).square().mean(1)
