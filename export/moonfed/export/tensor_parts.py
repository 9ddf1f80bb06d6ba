"""The part of a model that each tensor belongs to: shared by the fleet, frozen, or personal to each device.

Shared tensors travel in each round and are aggregated. Frozen ones are never trained, and devices fetch them once.
Personal ones stay on each device. Sources: FedPer, Arivazhagan et al. (arXiv 1912.00818), personal last layers;
LG-FedAvg, Liang et al. (arXiv 2001.01523), personal first layers; FedBN, Li et al. (ICLR 2021), personal BatchNorm;
FedBABU, Oh, Kim, Yun (ICLR 2022), a frozen head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch.nn.modules.batchnorm import _NormBase

from moonfed.errors import InvalidInput
from moonfed.export.network import exchanged_tensors
from moonfed.export.weights.matching import HEAD

ALL_BUT_HEAD, HEAD_NAME, BATCHNORM = "all-but-head", "head", "batchnorm"
ALLOWED = (
    f"{HEAD_NAME}, {ALL_BUT_HEAD}, {BATCHNORM}, or names of modules and tensors, such as encoder or encoder.layer[1-3]"
)
SHOWN = 4  # names


@dataclass(frozen=True, slots=True)
class TensorParts:
    """The names of a network's exchanged tensors by their part, each sorted."""

    shared: tuple[str, ...]
    frozen: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()


def read_parts(network: torch.nn.Module, freeze: str = "", personal: str = "", *, model: str = "") -> TensorParts:
    """Return the parts of a network, and mark its frozen tensors as not trained.

    `freeze`, `personal`: ALLOWED, with commas between several; empty: none. What the network's own code has frozen
    stays so. `model`: its name for error messages. Raises InvalidInput for a pattern that matches nothing, for a
    tensor in two parts, and if nothing is shared or trained.
    """
    tensors = exchanged_tensors(network)
    own = {name for name, tensor in tensors.items() if isinstance(tensor, torch.nn.Parameter) and not _trains(tensor)}
    chosen = _matching(network, "freeze", freeze) | own
    kept = _matching(network, "personal", personal)
    for name in sorted(chosen & kept):
        raise InvalidInput(
            f"personal is {personal!r}, which has tensor {name!r}, and that is frozen; a tensor is one or the other",
            field="personal",
            value=personal,
        )
    shared = tuple(name for name in tensors if name not in chosen | kept)
    if not any(_trains(tensors[name]) for name in shared):
        setting, value = ("personal", personal) if kept else ("freeze", freeze)
        raise InvalidInput(
            field=setting, value=value, rest=f", which leaves model {model!r} no tensor to train together; name fewer"
        )
    for name in chosen:
        tensors[name].requires_grad_(False)
    return TensorParts(shared, tuple(sorted(chosen)), tuple(sorted(kept)))


def freeze_modules(network: torch.nn.Module, frozen: tuple[str, ...]) -> None:
    """Put modules whose tensors are all frozen into eval mode: BatchNorm then uses its statistics, dropout nothing."""
    names = set(frozen)
    for path, module in network.named_modules():
        own = [f"{path}.{name}" if path else name for name in exchanged_tensors(module)]
        if own and names.issuperset(own):
            module.eval()


def _trains(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad


def _matching(network: torch.nn.Module, setting: str, text: str) -> set[str]:
    """Return the names of tensors that patterns match; of a normalisation layer all, if it has one of them."""
    names = list(exchanged_tensors(network))
    found: set[str] = set()
    for pattern in (part.strip() for part in text.split(",") if part.strip()):
        matched = {name for name in names if _matches(network, name, pattern)}
        if not matched:
            shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
            raise InvalidInput(
                f"{setting} is {pattern!r}, which matches no tensor of the model; it must be {ALLOWED}; "
                f"its tensors are {shown}",
                field=setting,
                value=pattern,
            )
        found |= matched
    for layer in _normalisations(network):
        if found & layer:
            found |= layer
    return found


def _matches(network: torch.nn.Module, name: str, pattern: str) -> bool:
    if pattern == HEAD_NAME:
        return name.startswith(HEAD)
    if pattern == ALL_BUT_HEAD:
        return not name.startswith(HEAD)
    if pattern == BATCHNORM:
        return any(name in layer for layer in _normalisations(network))
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _normalisations(network: torch.nn.Module) -> Iterator[set[str]]:
    """Yield the tensors of each layer that has running statistics."""
    for path, module in network.named_modules():
        if isinstance(module, _NormBase):
            yield {f"{path}.{name}" for name in exchanged_tensors(module)}
