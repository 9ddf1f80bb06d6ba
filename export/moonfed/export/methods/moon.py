"""MOON: pulls a device's representation towards the global model's and away from those of its own previous models.

    loss = l(F_w(x), y) + mu · l_con
    l_con = −log( exp(sim(z, z_glob)/tau) / (exp(sim(z, z_glob)/tau) + Σ_j exp(sim(z, z_prev^j)/tau)) ),  j = 1..k

l is the task's loss, such as cross-entropy. z = R_w(x) is the representation of the model in training, z_glob that of
the round's global model, z_prev^j that of the device's j-th latest local model; sim is cosine similarity. A device
without a previous model has no contrastive term yet; one with fewer than k uses those that it has. Frozen encoders are
in eval mode (as in the authors' code).

Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), section 3.3 and algorithm 1; mu 5 and tau 0.5
are its settings for CIFAR-10 (section 4.1), k > 1 its appendix (table 12).
Legend: B samples, D width of a representation, R references: the global one and the previous ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from moonfed.export.methods.method import Method, Objective
from moonfed.validate import require_at_least, require_positive, require_whole

MOST_PREVIOUS_MODELS = 1000  # each is a frozen encoder in the plan; the paper tries up to 100


class ModelContrastive(Objective):
    """The task's loss and MOON's model-contrastive loss, averaged over a batch."""

    def reference_count(self, previous: int, hyperparameters: dict[str, float]) -> int:
        """Count the frozen encoders: the global model's and each previous model's, or none before there is one."""
        return 0 if previous == 0 else 1 + previous

    def references(self, representations_BRD: torch.Tensor, hyperparameters: dict[str, float]) -> torch.Tensor:
        """Differences of directions [B, previous, D]."""
        return differences(representations_BRD, hyperparameters["tau"])

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """Return the batch's loss, a scalar."""
        if references_BRD.numel() > 0:
            loss = loss + hyperparameters["mu"] * model_contrast(z_BD, references_BRD)
        return loss


def differences(representations_BRD: torch.Tensor, tau: float) -> torch.Tensor:
    """Reduce the frozen representations [B, 1 + k, D] to the differences that l_con needs: [B, k, D].

    d_j = (z_prev^j/|z_prev^j| − z_glob/|z_glob|)/tau is constant in a round, and so is taken out of its steps. As in
    torch, a norm counts as 1e-8 at least.
    """
    lengths_BR1 = torch.linalg.vector_norm(representations_BRD, dim=2, keepdim=True)
    directions_BRD = representations_BRD / lengths_BR1.clamp_min(1e-8)
    differences_BKD: torch.Tensor = (directions_BRD[:, 1:] - directions_BRD[:, :1]) / tau
    return differences_BKD


def model_contrast(z_BD: torch.Tensor, differences_BKD: torch.Tensor) -> torch.Tensor:
    """l_con, averaged over a batch, as log(1 + Σ_j exp(x_j)) with x_j = d_j·z/|z|.

    Its gradient is written out too: autograd would launch twice as many kernels, and the whole term takes about as long
    as launching them. With p_j = exp(x_j)/(1 + Σ_i exp(x_i)) it is (Σ_j p_j·d_j − (Σ_j p_j·x_j)·z/|z|)/|z|.
    """
    with torch.no_grad():
        lengths_B1 = torch.linalg.vector_norm(z_BD, dim=1, keepdim=True).clamp_min_(1e-8)
        exponents_BK = (differences_BKD * z_BD.unsqueeze(1)).sum(2).div_(lengths_B1)
        one = exponents_BK.size(1) == 1
        losses_B1 = F.softplus(exponents_BK if one else torch.logsumexp(exponents_BK, 1, keepdim=True))
        shares_BK = torch.exp(exponents_BK - losses_B1)
        along_B1 = (shares_BK * exponents_BK).sum(1, keepdim=True).div_(lengths_B1)
        away_BD = (shares_BK.unsqueeze(2) * differences_BKD).sum(1)
        gradient_BD = away_BD.addcmul_(along_B1, z_BD, value=-1.0).div_(lengths_B1 * z_BD.size(0))
    nothing_BD = z_BD - z_BD.detach()  # zero, with z's gradient
    return losses_B1.mean() + torch.dot(gradient_BD.flatten(), nothing_BD.flatten())


@dataclass(frozen=True, slots=True, kw_only=True)
class Moon(Method):
    """MOON's hyperparameters: mu weighs the contrastive term, tau is its temperature, previous_models is k."""

    compares_representations: ClassVar[bool] = True

    mu: float = 5.0
    tau: float = 0.5
    previous_models: int = 1

    def __post_init__(self) -> None:
        require_at_least("mu", self.mu, 0.0)
        require_positive("tau", self.tau)
        require_whole("previous_models", self.previous_models, 1, MOST_PREVIOUS_MODELS)

    @property
    def frozen_encoders(self) -> int:
        """The number of frozen encoders: the global model's and one for each previous model."""
        return 1 + self.previous_models

    def hyperparameters(self) -> dict[str, float]:
        """Return mu and tau."""
        return {"mu": self.mu, "tau": self.tau}

    def objective(self) -> Objective:
        """Return the task's loss and the model-contrastive loss."""
        return ModelContrastive()
