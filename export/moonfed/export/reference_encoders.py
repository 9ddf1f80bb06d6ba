"""The frozen encoders behind a plan's references: joined where their layers allow it, one after another elsewhere."""

from collections.abc import Collection

import torch

from moonfed.export.frozen_encoder import frozen_encoder
from moonfed.export.joint_encoders import JointEncoders, joint_encoders
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.script_utils import copy_into, pick


class SeparateEncoders(torch.nn.Module):
    """Encoders of any architecture, which run one after another; possibly none."""

    states: list[list[torch.Tensor]]  # per encoder: its subset of the exchanged tensors
    places: list[int]  # indices of that subset in the manifest's order

    def __init__(self, network: Network, encoders: int, shared: Collection[str] = ()) -> None:
        super().__init__()
        self.frozen = torch.nn.ModuleList([frozen_encoder(network, shared) for _ in range(encoders)])
        tensors = [exchanged_tensors(encoder) for encoder in self.frozen]
        order = list(exchanged_tensors(network))
        self.states = [list(part.values()) for part in tensors]
        self.places = [order.index(name) for name in tensors[0]] if tensors else []

    def load(self, index: int, model: list[torch.Tensor]) -> None:
        """Copy a model, whose tensors are in the manifest's order, into one encoder."""
        copy_into(self.states[index], pick(model, self.places))

    def encode(self, samples: torch.Tensor, encoders: int) -> torch.Tensor:
        """Compute the representations [B, E, D] of preprocessed samples by the first encoders, at least one."""
        found: list[torch.Tensor] = []
        for index, encoder in enumerate(self.frozen):
            if index < encoders:
                found.append(encoder.encode(samples))  # type: ignore[operator]
        return torch.stack(found, dim=1)


def reference_encoders(
    network: Network, encoders: int, shared: Collection[str] = ()
) -> JointEncoders | SeparateEncoders:
    """Build a network's frozen encoders, all with its own weights, as one module.

    `shared`: names of frozen tensors, which separate encoders share with the network.
    """
    joint = joint_encoders(network, encoders) if encoders > 1 else None
    return SeparateEncoders(network, encoders, shared) if joint is None else joint
