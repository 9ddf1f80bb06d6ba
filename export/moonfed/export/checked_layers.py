"""Layers of which a plan has another version, because torch's own operators do not check what they are given."""

import copy
from typing import Optional

import torch
from torch import nn

import moonfed.plan.custom_operators  # noqa: F401 - defines moonfed::lstm
from moonfed.export.attention import replace_attention
from moonfed.export.network import Network


class CheckedLstm(nn.Module):
    """nn.LSTM by the operator `moonfed::lstm`, with the same parameters under the same names."""

    weights: list[torch.Tensor]

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        names = [name for names in layer._all_weights for name in names]
        for name in names:
            self.register_parameter(name, getattr(layer, name))
        self.weights = [getattr(self, name) for name in names]
        self.has_biases, self.layers, self.width = layer.bias, layer.num_layers, layer.hidden_size
        self.dropout, self.both, self.batch_first = float(layer.dropout), layer.bidirectional, layer.batch_first

    def forward(
        self,
        inputs: torch.Tensor,
        hx: Optional[tuple[torch.Tensor, torch.Tensor]] = None,  # noqa: UP045 - of the script
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Return what nn.LSTM does, of a batch."""
        if hx is None:
            batch = inputs.size(0) if self.batch_first else inputs.size(1)
            count = 2 * self.layers if self.both else self.layers
            zeros = torch.zeros([count, batch, self.width], dtype=self.weights[0].dtype, device=inputs.device)
            given = [zeros, zeros]
        else:
            given = [hx[0], hx[1]]
        states, hidden, cells = torch.ops.moonfed.lstm(
            inputs,
            given,
            self.weights,
            self.has_biases,
            self.layers,
            self.dropout,
            self.training,
            self.both,
            self.batch_first,
        )
        return states, (hidden, cells)


def check_layers(network: Network) -> Network:
    """Return a copy of a network with checked layers; it has the same state."""
    copied = copy.deepcopy(network)
    replace_attention(copied)
    _replace(copied)
    return copied


def _replace(module: nn.Module) -> None:
    for name, child in module.named_children():
        if type(child) is nn.LSTM and not child.proj_size:
            setattr(module, name, CheckedLstm(child).train(child.training))
        else:
            _replace(child)
