"""LoRA: low-rank changes of frozen layers, W x + (alpha / rank) B A x, of which devices train and exchange B only.

Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (ICLR 2022). A is random and, by default, frozen:
then the mean of devices' B A is their mean B times A, as Sun et al., Improving LoRA in Privacy-preserving Federated
Learning (ICLR 2024), show; means of B and of A are not the mean of B A.
Layers keep their names: a layer's `weight` (or `in_proj_weight`) stays, `lora_a` [rank, inputs] and `lora_b`
[outputs, rank] come with it. A convolution's inputs are its kernel's values.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from moonfed.errors import InvalidInput
from moonfed.export.attention import Attention, replace_attention
from moonfed.export.network import Network
from moonfed.registry import read_pairs, read_value, setting_types
from moonfed.validate import require, require_positive, require_whole

A, B = "lora_a", "lora_b"
KINDS = ("attention", "linear", "convolution", "all")
TARGETS = f"{', '.join(KINDS)} or a pattern of layers' names, such as encoder.layer4.*"
_UNCALLED = ("ShiftedWindowAttention", "ShiftedWindowAttentionV2")  # torchvision's, which read their layers' weights


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """The rank of changes, their scale alpha / rank, the layers that are changed, and what is trained."""

    rank: int
    alpha: float = 16.0
    targets: str = "attention"  # one of KINDS, or a pattern as of fnmatch
    train: Literal["b", "both"] = "b"

    def __post_init__(self) -> None:
        require_whole("lora.rank", self.rank, 1)
        require_positive("lora.alpha", self.alpha)
        require(bool(self.targets), "lora.targets", self.targets, TARGETS)

    @property
    def warning(self) -> str:
        """A sentence that a user should read; empty if there is none."""
        if self.train == "b":
            return ""
        return "lora.train is 'both': a mean of devices' A and B is not the mean of their B A; 'b' keeps A as it is"


def read_lora(text: str) -> LoraSettings:
    """Read `rank=8,alpha=16,targets=attention`; raise InvalidInput naming the field, the value and what is allowed."""
    values = read_pairs("lora", text.split(","))
    known = [item.name for item in fields(LoraSettings)]
    for name in values:
        require(name in known, "lora", name, f"one of {', '.join(known)}")
    require("rank" in values, "lora", text, "such as rank=8,alpha=16,targets=attention, with a rank")
    types = setting_types(LoraSettings)
    return LoraSettings(**{name: read_value(f"lora.{name}", value, types[name]) for name, value in values.items()})  # type: ignore[arg-type]


def changed(weight: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """Return W + scale · B A in the weight's shape."""
    return weight + scale * b.matmul(a).view_as(weight)


class LoraLinear(nn.Linear):
    """A linear layer with a low-rank change."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the layer does, and the change, without their product B A."""
        change = F.linear(F.linear(inputs, self.lora_a), self.lora_b)  # type: ignore[arg-type]
        return F.linear(inputs, self.weight, self.bias) + self.lora_scale * change  # type: ignore[operator]


class LoraOutput(NonDynamicallyQuantizableLinear):
    """The last projection of attention, whose weight is read and which is not called."""


class LoraConv1d(nn.Conv1d):
    """A convolution with a low-rank change."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the layer does with the changed weight."""
        weight = changed(self.weight, self.lora_a, self.lora_b, self.lora_scale)  # type: ignore[arg-type]
        found: torch.Tensor = self._conv_forward(inputs, weight, self.bias)
        return found


class LoraConv2d(nn.Conv2d):
    """A convolution with a low-rank change."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the layer does with the changed weight."""
        weight = changed(self.weight, self.lora_a, self.lora_b, self.lora_scale)  # type: ignore[arg-type]
        found: torch.Tensor = self._conv_forward(inputs, weight, self.bias)
        return found


class LoraConv3d(nn.Conv3d):
    """A convolution with a low-rank change."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the layer does with the changed weight."""
        weight = changed(self.weight, self.lora_a, self.lora_b, self.lora_scale)  # type: ignore[arg-type]
        found: torch.Tensor = self._conv_forward(inputs, weight, self.bias)
        return found


class LoraAttention(Attention):
    """Attention with low-rank changes of its projections, whose kernel takes the changed weights."""

    def input_weight(self) -> torch.Tensor | None:
        """Return the changed weight of queries, keys and values."""
        return changed(self.in_proj_weight, self.lora_a, self.lora_b, self.lora_scale)  # type: ignore[arg-type]

    def output_weight(self) -> torch.Tensor:
        """Return the changed weight of the result's projection."""
        layer = self.out_proj
        return changed(layer.weight, layer.lora_a, layer.lora_b, layer.lora_scale)  # type: ignore[arg-type]


_FORMS: Mapping[type[nn.Module], type[nn.Module]] = {
    Attention: LoraAttention,
    NonDynamicallyQuantizableLinear: LoraOutput,  # attention's last projection
    nn.Linear: LoraLinear,
    nn.Conv1d: LoraConv1d,
    nn.Conv2d: LoraConv2d,
    nn.Conv3d: LoraConv3d,
}
_PLAIN = {form: plain for plain, form in _FORMS.items()}


def add_lora(network: Network, settings: LoraSettings, seed: int = 0) -> list[str]:
    """Add changes to layers of a network's encoder, in place, and freeze all else in the encoder; return their names.

    A follows from the seed, B is zero, so the network computes what it did. Torch's layers of attention are replaced,
    see `attention`. Raises InvalidInput if no layer is a target.
    """
    replace_attention(network)
    layers = dict(_targets(network.encoder, settings.targets))
    if not layers:
        has = sorted({kind for _, _, kinds in _candidates(network.encoder) for kind in kinds})
        raise InvalidInput(
            field="lora.targets",
            value=settings.targets,
            rest=f", and the encoder's layers are {', '.join(has) or 'others'}; it must be {TARGETS}",
            allowed=TARGETS,
        )
    network.encoder.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for layer in layers.values():
        _change(layer, settings, generator)
    return list(layers)


class FormedLinear(LoraLinear):
    """A linear layer with a low-rank change, which forms the changed weight."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the layer does with the changed weight."""
        weight = changed(self.weight, self.lora_a, self.lora_b, self.lora_scale)  # type: ignore[arg-type]
        return F.linear(inputs, weight, self.bias)


def form_weights(network: Network) -> None:
    """Let all layers form their changed weights, in place: in a graph, they are constants that folding merges."""
    for module in network.modules():
        if type(module) is LoraLinear:
            module.__class__ = FormedLinear


def merged(network: Network) -> Network:
    """Return a copy of a network whose changes are part of the weights of plain layers."""
    copied = copy.deepcopy(network)
    for module in copied.modules():
        if type(module) in _PLAIN:
            weight = _weight(module)
            weight.data = changed(weight.data, module.lora_a.data, module.lora_b.data, module.lora_scale)  # type: ignore[arg-type]
            del module.lora_a, module.lora_b, module.lora_scale
            module.__class__ = _PLAIN[type(module)]
    return copied


def merged_weights(weights: Mapping[str, torch.Tensor], settings: LoraSettings) -> dict[str, torch.Tensor]:
    """Return a network's tensors by name, A and B included, as those of the network that `merged` returns."""
    found = {}
    for name, tensor in weights.items():
        layer, _, last = name.rpartition(".")
        if last in (A, B):
            continue
        change = last in ("weight", "in_proj_weight") and f"{layer}.{B}" in weights
        found[name] = (
            changed(tensor, weights[f"{layer}.{A}"], weights[f"{layer}.{B}"], settings.alpha / settings.rank)
            if change
            else tensor
        )
    return found


def _weight(layer: nn.Module) -> torch.Tensor:
    return layer.get_parameter("in_proj_weight" if isinstance(layer, Attention) else "weight")


def _change(layer: nn.Module, settings: LoraSettings, generator: torch.Generator) -> None:
    """Give a layer its changed form, with A as nn.Linear's weights are at first, and B zero."""
    weight = _weight(layer)
    outputs, inputs = weight.size(0), math.prod(weight.shape[1:])
    a, b = torch.empty(settings.rank, inputs), torch.zeros(outputs, settings.rank)
    nn.init.kaiming_uniform_(a, a=math.sqrt(5), generator=generator)
    layer.register_parameter(A, nn.Parameter(a, requires_grad=settings.train == "both"))
    layer.register_parameter(B, nn.Parameter(b))
    layer.lora_scale = settings.alpha / settings.rank  # type: ignore[assignment]
    layer.__class__ = _FORMS[type(layer)]


def _targets(encoder: nn.Module, targets: str) -> Iterator[tuple[str, nn.Module]]:
    for name, layer, kinds in _candidates(encoder):
        if targets in kinds or targets == "all" or (targets not in KINDS and fnmatchcase(name, targets)):
            yield name, layer
            if isinstance(layer, Attention):
                yield f"{name}.out_proj", layer.out_proj


def _candidates(encoder: nn.Module) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
    """Yield the layers that can be changed, with their names and kinds."""
    for path, parent in nn.ModuleDict({"encoder": encoder}).named_modules():
        if type(parent) is Attention and parent._qkv_same_embed_dim:
            yield path, parent, ("attention",)
        if isinstance(parent, nn.MultiheadAttention) or type(parent).__name__ in _UNCALLED:
            continue
        for name, layer in parent.named_children():
            if type(layer) is nn.Linear:
                within = "Attention" in type(parent).__name__
                yield f"{path}.{name}".lstrip("."), layer, ("attention", "linear") if within else ("linear",)
            elif type(layer) in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
                yield f"{path}.{name}".lstrip("."), layer, ("convolution",)
