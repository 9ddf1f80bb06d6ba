"""State that a network's forward writes, found in its compiled code, and compared with what devices exchange."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from moonfed.errors import InvalidInput
from moonfed.export.source_place import source_place
from moonfed.plan.inspection.functions import NO_SCHEMA, nodes

_READ, _WRITE = "prim::GetAttr", "prim::SetAttr"
_ANY = "*"  # of a schema's aliases: what a list holds


def require_exchanged_state(
    scripted: torch.jit.ScriptModule, network: torch.nn.Module, exchanged: Collection[str], *, model: str
) -> None:
    """Raise InvalidInput if forward keeps state that is not exchanged: it would never reach the global model.

    `scripted`: the compiled network. Every branch counts, whether or not it is taken at first. What forward only
    assigns, and never reads, is no state.
    """
    graph = scripted.graph.copy()
    torch._C._jit_pass_inline(graph)
    found = list(nodes(graph))
    read = {_path(node) for node in found if node.kind() == _READ}
    for node in found:
        if node.kind() == _WRITE:
            name = _join(_path(node.inputsAt(0).node()), node.s("name"))
            if name in read:
                raise InvalidInput(
                    field="model", value=model, rest=f", whose {_replaced(network, name, exchanged)}{_place(node)}"
                )
        elif (name := _written(node)) and name not in exchanged and not _is_counter(network, name):
            raise InvalidInput(field="model", value=model, rest=f", whose {_changed(network, name)}{_place(node)}")


def _path(node: Any) -> str:  # noqa: ANN401 - torch's graphs have no types
    """Return the qualified name of the attribute that a node reads; "" for the network itself."""
    return _join(_path(node.inputsAt(0).node()), node.s("name")) if node.kind() == _READ else ""


def _join(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def _written(node: Any) -> str:  # noqa: ANN401
    """Return the attribute that an operator changes in place, directly or through a view; "" if there is none."""
    return next((_source(value.node()) for value, writes in _aliases(node) if writes), "")


def _source(node: Any) -> str:  # noqa: ANN401
    while node.kind() != _READ:
        viewed = [value for value, _ in _aliases(node)]
        if not viewed:
            return ""
        node = viewed[0].node()
    return _path(node)


def _aliases(node: Any) -> list[tuple[Any, bool]]:  # noqa: ANN401
    """Return the inputs that an operator writes into, or whose memory its results share, and whether it writes."""
    declared = node.schema()
    if declared == NO_SCHEMA:
        return []
    schema = torch._C.parse_schema(declared)
    shared = {name for result in schema.returns if result.alias_info for name in result.alias_info.before_set}
    return [
        (value, bool(argument.alias_info.is_write))
        for value, argument in zip(node.inputs(), schema.arguments, strict=False)
        if argument.alias_info
        and (argument.alias_info.is_write or _ANY in shared or shared & set(argument.alias_info.before_set))
    ]


def _is_counter(network: torch.nn.Module, name: str) -> bool:
    """Return whether it is BatchNorm's counter, which each round resets."""
    owner, _, attribute = name.rpartition(".")
    return attribute == "num_batches_tracked" and isinstance(network.get_submodule(owner), _NormBase)


def _replaced(network: torch.nn.Module, name: str, exchanged: Collection[str]) -> str:
    attribute = name.rpartition(".")[2]
    if name in exchanged:
        return f"buffer {name!r} is replaced in forward; write into it: self.{attribute}.copy_(…)"
    return f"{_kind(network, name)} {name!r} is assigned in forward and would not be exchanged; {_remedy(attribute)}"


def _changed(network: torch.nn.Module, name: str) -> str:
    kind = _kind(network, name)
    return f"{kind} {name!r} changes in forward and would not be exchanged; {_remedy(name.rpartition('.')[2])}"


def _kind(network: torch.nn.Module, name: str) -> str:
    owner, _, attribute = name.rpartition(".")
    buffers = dict(network.get_submodule(owner).named_buffers(recurse=False))
    return f"{str(buffers[attribute].dtype).removeprefix('torch.')} buffer" if attribute in buffers else "attribute"


def _remedy(attribute: str) -> str:
    return f"register it as a persistent float32 buffer, and write into it: self.{attribute}.copy_(…)"


def _place(node: Any) -> str:  # noqa: ANN401
    """Return the line of the source that a node comes from."""
    inputs = reversed(list(node.inputs()))
    place = source_place(node.sourceRange(), *(value.node().sourceRange() for value in inputs))
    return f" ({place})" if place else ""
