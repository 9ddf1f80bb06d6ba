"""Frozen encoders of one architecture as one module, in which each layer computes all of them together.

The small CNN's layers are too narrow to fill a processor's vectors, so two encoders cost little more than one: with a
batch of 64 on one thread of an Intel Xeon, 2.4 ms instead of 4.0 ms channels-last, and 3.0 ms contiguous.
Legend: B samples, E encoders, F features, C channels, H height, W width, D width of a representation.
"""

from collections.abc import Iterator
from enum import Enum, auto
from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from moonfed.export.frozen_encoder import MaxPool2x2, frozen_encoder
from moonfed.export.network import DenseNetwork, Network, exchanged_tensors
from moonfed.export.script_utils import copy_into, pick

MOST_ENCODERS = 8  # their activations of a batch are in memory at the same time


class Pointwise(nn.Module):
    """A layer without weights that treats all channels or features alike, such as ReLU."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, encoders: int) -> torch.Tensor:
        """Apply the layer, whatever the number of encoders."""
        y: torch.Tensor = self.layer(x)
        return y


class JointConv2d(nn.Module):
    """Convolutions of the same [B, C, H, W] if shared, otherwise of each encoder's own channels in [B, E·C, H, W]."""

    def __init__(self, layer: nn.Conv2d, encoders: int, *, shared: bool) -> None:
        super().__init__()
        self.weight, self.bias = _stacked(layer.weight, encoders), _stacked(layer.bias, encoders)  # type: ignore[arg-type]
        self.inputs = layer.in_channels
        self.outputs = layer.out_channels
        self.shared = shared
        self.stride = layer.stride
        self.padding = layer.padding
        self.dilation = layer.dilation

    def forward(self, x: torch.Tensor, encoders: int) -> torch.Tensor:
        """Compute [B, E·C', H', W']."""
        if not self.shared and x.is_contiguous():  # groups are slow in this memory format
            own = [x.narrow(1, index * self.inputs, self.inputs) for index in range(encoders)]
            return torch.cat([self.convolve(each, index, 1, 1) for index, each in enumerate(own)], 1)
        return self.convolve(x, 0, encoders, 1 if self.shared else encoders)

    def convolve(self, x: torch.Tensor, first: int, encoders: int, groups: int) -> torch.Tensor:
        """Convolve with the weights of some consecutive encoders."""
        start, channels = first * self.outputs, encoders * self.outputs
        weight, bias = self.weight.narrow(0, start, channels), self.bias.narrow(0, start, channels)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, groups)


class SplitChannels(nn.Module):
    """The flattening of [B, E·C, H, W] that yields a batch for each encoder."""

    def forward(self, x: torch.Tensor, encoders: int) -> torch.Tensor:
        """Compute [E, B, C·H·W]."""
        return x.reshape(x.size(0), encoders, -1).transpose(0, 1)


class JointLinear(nn.Module):
    """The encoders' linear layers, each of its own batch in [E, B, F]."""

    def __init__(self, layer: nn.Linear, encoders: int) -> None:
        super().__init__()
        self.weight, self.bias = _stacked(layer.weight, encoders), _stacked(layer.bias, encoders)
        self.inputs, self.outputs = layer.in_features, layer.out_features

    def forward(self, x: torch.Tensor, encoders: int) -> torch.Tensor:
        """Compute [E, B, F']."""
        weight = self.weight.narrow(0, 0, encoders * self.outputs).reshape(encoders, self.outputs, self.inputs)
        bias = self.bias.narrow(0, 0, encoders * self.outputs).reshape(encoders, 1, self.outputs)
        return torch.baddbmm(bias, x, weight.transpose(1, 2))


class JointEncoders(nn.Module):
    """Encoders whose layers have been joined."""

    tensors: list[torch.Tensor]  # the layers' weights and biases; the encoders' are stacked along dimension 0
    places: list[int]  # their indices in the manifest's order

    def __init__(self, layers: list[nn.Module], places: list[int], encoders: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.places = places
        self.encoders = encoders
        self.tensors = list(self.layers.parameters())

    def load(self, index: int, model: list[torch.Tensor]) -> None:
        """Copy a model, whose tensors are in the manifest's order, into one encoder."""
        own: list[torch.Tensor] = []
        for tensor in self.tensors:
            rows = tensor.size(0) // self.encoders
            own.append(tensor.narrow(0, index * rows, rows))
        copy_into(own, pick(model, self.places))

    def encode(self, samples: torch.Tensor, encoders: int) -> torch.Tensor:
        """Compute the representations [B, E, D] of preprocessed samples by the first encoders, at least one."""
        x = samples
        for layer in self.layers:
            x = layer(x, encoders)
        return x.transpose(0, 1)


def joint_encoders(network: Network, encoders: int) -> JointEncoders | None:
    """Join the frozen encoders of a network, or return None if they are too many or have other layers.

    Encoder and head must be a sequence of convolutions and linear layers with a bias, ReLU, and 2x2 max-pools with
    stride 2, and the first layer with weights a convolution.
    """
    if isinstance(network, DenseNetwork):
        return None
    frozen = frozen_encoder(network)
    layers = [*_in_sequence(frozen.encoder), nn.Flatten(), *_in_sequence(frozen.projection_head)]
    joint = _join(layers, encoders) if encoders <= MOST_ENCODERS else None
    if joint is None:
        return None
    names = {id(tensor): name for name, tensor in exchanged_tensors(frozen).items()}
    order = list(exchanged_tensors(network))
    tensors = chain.from_iterable(layer.parameters() for layer in layers)
    return JointEncoders(joint, [order.index(names[id(tensor)]) for tensor in tensors], encoders)


def _in_sequence(module: nn.Module) -> Iterator[nn.Module]:
    """Unpack sequences; drop layers that change nothing in eval mode."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from _in_sequence(child)
    elif type(module) not in (nn.Identity, nn.Dropout):
        yield module


class _Form(Enum):
    """The form of the activations between two layers."""

    SAMPLES = auto()  # [B, C, H, W], the same for all encoders
    CHANNELS = auto()  # [B, E·C, H, W]
    BATCHES = auto()  # [E, B, F]


def _join(layers: list[nn.Module], encoders: int) -> list[nn.Module] | None:
    joint: list[nn.Module] = []
    form = _Form.SAMPLES
    for layer in layers:
        found = _join_layer(layer, form, encoders)
        if found is None:
            return None
        joint.append(found[0])
        form = found[1]
    return joint if form is _Form.BATCHES else None


def _join_layer(layer: nn.Module, form: _Form, encoders: int) -> tuple[nn.Module, _Form] | None:
    """Return the joint layer for activations of a form, and the form of its results."""
    kind = type(layer)
    if kind is nn.ReLU or (kind is MaxPool2x2 and form is not _Form.BATCHES):
        return Pointwise(layer), form
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
        if form is _Form.BATCHES:  # they are flat
            return Pointwise(nn.Identity()), form
        return (SplitChannels(), _Form.BATCHES) if form is _Form.CHANNELS else None
    if getattr(layer, "bias", None) is None:
        return None
    if isinstance(layer, nn.Conv2d) and _is_plain(layer) and form is not _Form.BATCHES:
        return JointConv2d(layer, encoders, shared=form is _Form.SAMPLES), _Form.CHANNELS
    if isinstance(layer, nn.Linear) and kind is nn.Linear and form is _Form.BATCHES:
        return JointLinear(layer, encoders), form
    return None


def _is_plain(layer: nn.Conv2d) -> bool:
    padded_with_zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return type(layer) is nn.Conv2d and layer.groups == 1 and padded_with_zeros


def _stacked(tensor: torch.Tensor, encoders: int) -> nn.Parameter:
    return nn.Parameter(torch.cat([tensor.detach()] * encoders), requires_grad=False)
