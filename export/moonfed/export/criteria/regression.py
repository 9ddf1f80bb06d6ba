"""The criterion of regression, on standardised values; `moonfed.tasks.regression` has the sources.

Legend: B samples, H steps of a forecast, T values.
"""

from typing import Final

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.criteria.criterion import Criterion
from moonfed.tasks.regression import Regression


class ValueCriterion(Criterion):
    """Squared error, absolute error, Huber or pinball loss, averaged over values."""

    huber: Final[bool]  # TorchScript compiles no branches that are not taken
    absolute: Final[bool]
    pinball: Final[bool]

    def __init__(self, task: Regression, target: TargetSpec, sample: InputSpec) -> None:
        super().__init__()
        self.huber = task.loss == "huber"
        self.absolute = task.loss == "absolute-error"
        self.pinball = task.loss == "pinball"
        self.delta = task.delta
        self.quantile = task.quantile
        self.shape = list(target.shape)
        values = len(target.names)
        self.mean_T = torch.tensor(target.mean or [0.0] * values)
        self.deviation_T = torch.tensor(target.deviation or [1.0] * values)

    def targets(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Standardise values."""
        return (targets - self.mean_T.to(targets.device)) / self.deviation_T.to(targets.device)

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of outputs and standardised values."""
        found = outputs.view(targets.size())
        if self.huber:
            return F.huber_loss(found, targets, delta=self.delta)
        if self.absolute:
            return F.l1_loss(found, targets)
        if self.pinball:
            below = targets - found
            return torch.maximum(self.quantile * below, (self.quantile - 1.0) * below).mean()
        return F.mse_loss(found, targets)

    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [1]: the sum of the samples' mean squared errors, of values in their units."""
        errors = (outputs.view(targets.size()) - targets) * self.deviation_T.to(outputs.device)
        return errors.square().mean().view(1) * outputs.size(0)

    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the root mean squared error."""
        return torch.sqrt(sums[0].to(torch.float64) / samples)

    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return values in their units, [B, T] or [B, H, T]."""
        found = outputs.view([outputs.size(0)] + self.shape)  # noqa: RUF005 - TorchScript unpacks no lists
        return found * self.deviation_T.to(found.device) + self.mean_T.to(found.device)
