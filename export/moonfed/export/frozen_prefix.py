"""The frozen first layers of a network, whose outputs can be computed once for all encoders, and kept for a round."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Collection

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from moonfed.data.data_set import Inputs
from moonfed.export.network import DenseNetwork, Network, exchanged_tensors


def split_prefix(network: Network, frozen: Collection[str]) -> tuple[nn.Module | None, Network]:
    """Return a network's frozen first layers, and the network that takes their outputs; None if there are none.

    The first layers are the encoder, or the beginning of an encoder that is a sequence. The network shares its tensors
    with the given one, which is not changed; the names of the others stay the same.
    """
    encoder = network.encoder
    if isinstance(network, DenseNetwork) or not frozen:
        return None, network
    if _is_frozen("encoder", encoder, frozen):
        return encoder, _with_encoder(network, nn.Identity())
    if type(encoder) is not nn.Sequential:
        return None, network
    children, count = list(encoder.named_children()), 0
    for name, child in children:
        has_tensors = bool(exchanged_tensors(child))
        if has_tensors and not _is_frozen(f"encoder.{name}", child, frozen):
            break
        if not has_tensors and any(isinstance(module, _DropoutNd) for module in child.modules()):
            break
        count += 1
    if not any(exchanged_tensors(child) for _, child in children[:count]):
        return None, network
    rest = nn.Sequential(OrderedDict(children[count:]))
    rest.training = encoder.training  # its children keep theirs
    return nn.Sequential(OrderedDict(children[:count])), _with_encoder(network, rest)


def prefix_width(network: Network, prefix: nn.Module, samples: Inputs) -> int:
    """Return the number of values of a sample after the prefix, of raw samples [B, …]."""
    with torch.no_grad():
        return int(prefix.eval()(network.preprocessing(torch.from_numpy(samples)))[0].numel())


def _is_frozen(path: str, module: nn.Module, frozen: Collection[str]) -> bool:
    names = [f"{path}.{name}" for name in exchanged_tensors(module)]
    return bool(names) and all(name in frozen for name in names)


def _with_encoder(network: Network, encoder: nn.Module) -> Network:
    replaced = copy.copy(network)
    replaced._modules = {**network._modules, "encoder": encoder}
    return replaced
