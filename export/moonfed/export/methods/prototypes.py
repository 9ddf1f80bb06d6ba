"""Prototypes: mean representations of classes across the fleet, shared by FedSSC and its relatives.

A device sends, for each class of which it has at least `prototype_minimum` samples, the mean of their representations
z, and a mask of these classes, but no number of samples. The means are taken with the weights after the round's last
step, in eval mode, without augmentation. The coordinator makes a prototype p_c of the means of a few devices, or of
all, each of which counts the same. The prototype loss

    l_glob = −log( exp(sim(z, p_y)/tau) / Σ_c exp(sim(z, p_c)/tau) )

leaves classes that have no prototype out of its denominator. A sample of such a class has no l_glob, and counts as 0 in
the batch's mean, so that a rare prototype does not weigh more than the samples that it represents.

Source: Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning.
Legend: B samples, C classes, D width of a representation.
"""

import torch
import torch.nn.functional as F

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import CLASS_MEANS, PROTOTYPES, Roles
from moonfed.export.methods.method import ExchangeShapes


class Prototypes(torch.nn.Module):
    """The prototypes that a round starts from."""

    def __init__(self) -> None:
        super().__init__()
        self.directions_CD = torch.empty(0)  # 0 of a class that has none
        self.places_C = torch.empty(0, dtype=torch.int64)  # of each class among them; -1 of one that has none

    def begin(self, received: dict[str, list[torch.Tensor]], device: torch.device) -> None:
        """Store the received tensors: `present` [C] and `prototypes` [C, D], or none."""
        self.directions_CD = torch.empty(0, device=device)
        if "prototypes" in received:
            present_C = received["prototypes"][0].to(device) > 0
            self.directions_CD = F.normalize(received["prototypes"][1].to(device), dim=1)
            self.places_C = torch.where(present_C, torch.arange(present_C.size(0), device=device), -1)

    def any(self) -> bool:
        """Return True if prototypes were received."""
        return self.directions_CD.numel() > 0

    def forward(self, z_BD: torch.Tensor, labels_B: torch.Tensor, tau: float) -> torch.Tensor:
        """l_glob, averaged over a batch; at least one class must have a prototype."""
        similarities_BC = F.normalize(z_BD, dim=1).matmul(self.directions_CD.t()) / tau
        # Not −inf: if no class had a prototype, there would be no denominator at all.
        present_BC = similarities_BC.masked_fill(self.places_C < 0, -1e9)
        # l_glob is a cross-entropy in which the sample's own prototype is the right answer
        summed = F.cross_entropy(present_BC, self.places_C[labels_B], ignore_index=-1, reduction="sum")
        return summed / labels_B.size(0)


class ClassMeans(torch.nn.Module):
    """Sums of representations by class, in float64, so that an accelerator's order of additions has no effect."""

    def __init__(self) -> None:
        super().__init__()
        self.sums_CD = torch.empty(0)
        self.counts_C = torch.empty(0)

    def begin(self, device: torch.device) -> None:
        """Reset the sums to 0, of any shape."""
        self.sums_CD = torch.zeros([], dtype=torch.float64, device=device)
        self.counts_C = torch.zeros([], dtype=torch.float64, device=device)

    def add(self, z_BD: torch.Tensor, labels_B: torch.Tensor, classes: int) -> None:
        """Add a batch."""
        sums_CD = torch.zeros([classes, z_BD.size(1)], dtype=torch.float64, device=z_BD.device)
        counts_C = torch.zeros([classes], dtype=torch.float64, device=z_BD.device)
        sums_CD.index_add_(0, labels_B, z_BD.detach().to(torch.float64))
        counts_C.index_add_(0, labels_B, torch.ones_like(labels_B, dtype=torch.float64))
        self.sums_CD, self.counts_C = self.sums_CD + sums_CD, self.counts_C + counts_C

    def shared(self, minimum: float) -> list[torch.Tensor]:
        """Return `mask` [C], 1 for classes with at least the minimum of samples, and `means` [C, D], 0 for others."""
        if self.counts_C.dim() == 0:
            raise ValueError("class means need a survey of all samples after the last step")
        qualifies_C = self.counts_C >= minimum
        means_CD = self.sums_CD / self.counts_C.clamp(min=1.0).unsqueeze(1)
        shared_CD = torch.where(qualifies_C.unsqueeze(1), means_CD, torch.zeros_like(means_CD))
        return [qualifies_C.to(torch.float32), shared_CD.to(torch.float32)]


def prototype_downlink(shapes: ExchangeShapes) -> Roles:
    """Return the role that `Prototypes` reads."""
    return {
        PROTOTYPES: (
            TensorSpec("present", (shapes.classes,), "statistic"),
            TensorSpec("prototypes", (shapes.classes, shapes.width), "statistic"),
        )
    }


def class_means_uplink(shapes: ExchangeShapes) -> Roles:
    """Return the role that `ClassMeans` fills."""
    return {
        CLASS_MEANS: (
            TensorSpec("mask", (shapes.classes,), "statistic"),
            TensorSpec("means", (shapes.classes, shapes.width), "statistic"),
        )
    }
