"""The build's check of a network's state: what `forward` changes must be what devices exchange.

A device returns parameters and persistent floating-point buffers, which `forward` changes in place. Anything else that
`forward` changes, such as a buffer that it assigns anew, stays on the device, and the global model never learns it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from moonfed.errors import InvalidInput
from moonfed.export.network import Network, exchanged_tensors
from moonfed.user_code import describe_error

OWN = frozenset({*vars(nn.Module()), "training"})  # attributes of every module, not the user's
PLAIN = (bool, int, float, complex, str, list, tuple, dict, set, torch.Tensor, type(None))
CALLS = 3  # of forward: the first one may fill caches, which do not change afterwards


@dataclass(frozen=True, slots=True)
class Held:
    """A value that a module holds, and a copy of it."""

    value: object
    copy: object


def require_exchanged_state(network: Network, batches: Sequence[torch.Tensor], model: str) -> None:
    """Raise InvalidInput, naming the model, if `forward` changes what devices do not exchange.

    `batches`: `CALLS` batches of raw samples. The network is not modified.
    """
    for training in (True, False):
        held = _copy(network, model).train(training)
        _call(held, batches[0], model, training=training)
        before = dict(_state(held))
        for inputs in batches[1:]:
            _call(held, inputs, model, training=training)
        exchanged = {id(tensor) for tensor in exchanged_tensors(held).values()}
        for name, (kind, value) in _state_with_kinds(held).items():
            if name in before and _same(before[name].copy, value):
                continue
            if problem := _problem(held, name, kind, before.get(name), value, exchanged, training=training):
                raise InvalidInput(f"model is {model!r}, whose {kind} {name!r} {problem}")


def _copy(network: Network, model: str) -> Network:
    try:
        return copy.deepcopy(network)
    except Exception as error:  # user code may raise anything
        raise InvalidInput(f"model is {model!r}, which cannot be copied: {describe_error(error)}") from error


def _call(network: Network, inputs: torch.Tensor, model: str, *, training: bool) -> None:
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            network(inputs)
    except Exception as error:  # user code may raise anything
        mode = "training" if training else "evaluation"
        raise InvalidInput(f"model is {model!r}, which fails in {mode} mode: {describe_error(error)}") from error


def _state(network: Network) -> Iterator[tuple[str, Held]]:
    for name, (_, value) in _state_with_kinds(network).items():
        yield name, Held(value, copy.deepcopy(value.detach() if isinstance(value, torch.Tensor) else value))


def _state_with_kinds(network: Network) -> dict[str, tuple[str, object]]:
    """Return parameters, buffers and plain attributes by name, with their kind."""
    found: dict[str, tuple[str, object]] = {name: ("parameter", value) for name, value in network.named_parameters()}
    found |= {name: ("buffer", value) for name, value in network.named_buffers()}
    for path, module in network.named_modules():
        for name, value in vars(module).items():
            if name not in OWN and isinstance(value, PLAIN) and _is_plain(value):
                found[f"{path}.{name}" if path else name] = ("attribute", value)
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple, set)):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _same(before: object, after: object) -> bool:
    """Compare values, of which tensors have no single truth."""
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return before.shape == after.shape and before.dtype == after.dtype and _equal(before, after)
    if type(before) is not type(after):
        return False
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_same(before[key], after[key]) for key in before)
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return len(before) == len(after) and all(map(_same, before, after))
    return before == after or (before != before and after != after)  # NaN


def _equal(before: torch.Tensor, after: torch.Tensor) -> bool:
    nan = before.is_floating_point()
    return torch.equal(before.nan_to_num(), after.nan_to_num()) if nan else torch.equal(before, after)


def _problem(
    network: Network, name: str, kind: str, before: Held | None, value: object, exchanged: set[int], *, training: bool
) -> str:
    """Describe why a change is lost, and what to write instead; empty if devices exchange it."""
    path, _, leaf = name.rpartition(".")
    owner = network.get_submodule(path)
    if kind == "attribute":
        return (
            "changes in forward and is not exchanged; "
            f"register it with self.register_buffer({leaf!r}, …) and write into it: self.{leaf}.copy_(…)"
        )
    if before is None or before.value is not value:
        return f"is replaced in forward; write into it: self.{leaf}.copy_(…)"
    if isinstance(owner, _BatchNorm) and leaf == "num_batches_tracked":
        return "" if owner.momentum is not None else "is needed if momentum is None, and not exchanged; set a momentum"
    if leaf in owner._non_persistent_buffers_set:
        return "changes in forward and is not persistent, so not exchanged; register it with persistent=True"
    if id(value) not in exchanged:
        dtype = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        return f"of {dtype} changes in forward, and only floating-point buffers are exchanged; make it torch.float32"
    if not training:
        return "changes in evaluation mode, so that a prediction depends on earlier ones; change it if self.training"
    return ""
