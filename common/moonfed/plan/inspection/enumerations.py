"""Inspection of the numbers that stand for data types, layouts and memory formats.

TorchScript passes them as integers. Torch does not check them, and reads beyond its tables with an invalid one. So each
must be a valid constant, or that of a tensor. It may pass through conditions, loops and calls of the plan's functions,
but no computation, attribute or list may yield it. Nor may `aten::to` copy without a device and a data type: torch then
reads a data type that nobody has set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.functions import Use, nodes

SCALAR_TYPE = "ScalarType"
LAYOUT = "Layout"
MEMORY_FORMAT = "MemoryFormat"
# c10's numbers: integers up to 64 bits, float16 to float64, bool and bfloat16; strided; all memory formats.
VALID: Mapping[str, frozenset[int]] = {
    SCALAR_TYPE: frozenset({0, 1, 2, 3, 4, 5, 6, 7, 11, 15}),
    LAYOUT: frozenset({0}),
    MEMORY_FORMAT: frozenset({0, 1, 2, 3}),
}
_MEANINGS: Mapping[str, str] = {SCALAR_TYPE: "data type", LAYOUT: "layout", MEMORY_FORMAT: "memory format"}
_NAMES: Mapping[str, str] = {"dtype": SCALAR_TYPE, "layout": LAYOUT, "memory_format": MEMORY_FORMAT}  # of arguments
_OF_TENSORS: Mapping[str, str] = {"prim::dtype": SCALAR_TYPE, "prim::layout": LAYOUT}
_PASSED_ON = frozenset({"prim::unchecked_cast", "prim::unchecked_unwrap_optional"})
_INTERFACE = "interface"  # stands for all types; the object decides
_CONVERSIONS: Mapping[str, tuple[int, int]] = {  # the positions of `device` (-1: none) and `copy`
    "aten::to.prim_Device": (1, 4),
    "aten::to.prim_dtype": (-1, 3),
}
_CALLS = frozenset({"prim::CallFunction", "prim::CallMethod"})
Node = Any  # torch's bindings are untyped
Value = Any
Place = tuple[Value, str]  # a value, and the function that it is in


def require_valid(graphs: Mapping[str, Any], used: Sequence[Use], entry: str) -> None:
    """Raise UnsafePlan if an operator's data type, layout or memory format may be invalid.

    `graphs`: those of all functions that the plan has, by name. `used`: their nodes. `entry`: the type whose methods
    are called from outside, with any arguments.
    """
    origins = _Origins(graphs, used, entry)
    for function, node, operator in used:
        if operator in _CALLS and not origins.called(node):
            raise UnsafePlan(f"the plan calls {_called(node)[:100]!a}, which its code does not define")
        if operator in _CONVERSIONS and not _is_safe_conversion(node, *_CONVERSIONS[operator]):
            raise UnsafePlan(
                "the plan's 'aten::to' copies without a device; it must have one, or use `clone`",
                field="device of operator",
                value="aten::to",
            )
        for position, kind in _enumerations(node, operator):
            if not origins.all_valid(_at(node.inputs(), position), function, kind):
                name, meaning = operator.partition(".")[0], _MEANINGS[kind]
                raise UnsafePlan(
                    f"the plan's {name!r} has a {meaning} that is computed, or that no plan may use; "
                    "it must be a constant, or that of a tensor",
                    field=f"{meaning} of operator",
                    value=name,
                )


def _enumerations(node: Node, operator: str) -> tuple[tuple[int, str], ...]:
    """Return the positions and kinds of a node's arguments that are such numbers.

    Before it runs code, torch inserts casts to the data type stored in its object for autocasting.
    """
    if operator == "prim::SetAttr":
        return ((1, SCALAR_TYPE),) if node.s("name") == "fast_dtype" else ()
    found: tuple[tuple[int, str], ...] = _declared(operator)
    return found


def _is_safe_conversion(node: Node, device: int, copy: int) -> bool:
    """Return whether a conversion, whose data type may be None, never copies, or always has a device."""
    given = list(node.inputs())
    if given[copy].node().kind() == "prim::Constant" and given[copy].toIValue() is False:
        return True
    source = given[device].node().kind() if device >= 0 else ""
    return source == "prim::device" or (source == "prim::Constant" and given[device].toIValue() is not None)


@cache
def _declared(operator: str) -> tuple[tuple[int, str], ...]:
    torch_c: Any = torch._C
    name, _, overload = operator.partition(".")
    schemas = torch_c._jit_get_schemas_for_operator(name)
    if not schemas:
        return ()  # a part of the language, such as `prim::If`
    found = [schema for schema in schemas if schema.overload_name == overload]
    if not found:
        raise UnsafePlan(f"the plan uses the operator {operator!r}, whose arguments are not known")
    kinds = [(position, _kind(argument)) for position, argument in enumerate(found[0].arguments)]
    return tuple((position, kind) for position, kind in kinds if kind is not None)


def _kind(argument: Any) -> str | None:  # noqa: ANN401
    """Return what an argument stands for; some operators of TorchScript declare an integer, and only its name tells."""
    declared = str(argument.real_type)
    if "int" in declared and argument.name in _NAMES:
        return _NAMES[argument.name]
    return next((kind for kind in VALID if kind in declared), None)


class _Origins:
    """The values that a value may be, wherever in the plan they come from."""

    def __init__(self, graphs: Mapping[str, Any], used: Sequence[Use], entry: str) -> None:
        self._graphs = graphs
        self._used = used
        self._entry = entry
        self._loops: dict[str, dict[str, tuple[Node, int]]] = {}  # by function and name: the loop, and the position
        self._calls: dict[str, list[tuple[Node, str]]] | None = None  # by what is called

    def called(self, call: Node) -> list[str]:
        """Return the functions that a call may execute."""
        called = _called(call)
        interface, _, name = called.rpartition(".")
        if interface == _INTERFACE:
            return [each for each in self._graphs if each.rpartition(".")[2] == name]
        return [called] if called in self._graphs else []

    def all_valid(self, value: Value, function: str, kind: str) -> bool:
        """Return whether a value is always a valid number of that kind, or None."""
        pending: list[Place] = [(value, function)]
        seen: set[tuple[str, str]] = set()
        while pending:
            value, function = pending.pop()
            if (function, value.debugName()) in seen:
                continue
            seen.add((function, value.debugName()))
            sources = self._sources(value, function, kind)
            if sources is None:
                return False
            pending += sources
        return True

    def _sources(self, value: Value, function: str, kind: str) -> Sequence[Place] | None:
        """Return the values that this may be: an empty list if it is valid by itself, None if it may be anything."""
        node = value.node()
        operator = node.kind()
        if operator == "prim::Constant":
            constant = value.toIValue()
            return [] if constant is None or (type(constant) is int and constant in VALID[kind]) else None
        if _OF_TENSORS.get(operator) == kind or operator == "prim::Uninitialized":  # which no operator accepts
            return []
        if operator in _PASSED_ON:
            return [(node.input(), function)]
        if operator == "prim::Param":
            return self._sources_of_parameter(value, function)
        position = [each.debugName() for each in node.outputs()].index(value.debugName())
        if operator == "prim::If":
            return [(_at(block.outputs(), position), function) for block in node.blocks()]
        if operator == "prim::Loop":
            return _carried(node, position, function)
        if operator in _CALLS:
            return self._results(node, position)
        return None

    def _sources_of_parameter(self, value: Value, function: str) -> Sequence[Place] | None:
        loops = self._loops.get(function)
        if loops is None:
            loops = self._loops[function] = dict(_loop_variables(self._graphs[function]))
        if value.debugName() in loops:
            loop, position = loops[value.debugName()]
            return _carried(loop, position, function) if position >= 0 else None
        parameters = [each.debugName() for each in self._graphs[function].inputs()]
        position = parameters.index(value.debugName())
        owner, _, name = function.rpartition(".")
        calls = self._calls_of(function) + self._calls_of(f"{_INTERFACE}.{name}")
        if owner == self._entry or not calls:
            return None
        return self._arguments(calls, position)

    def _arguments(self, calls: Sequence[tuple[Node, str]], position: int) -> Sequence[Place] | None:
        found = []
        for node, caller in calls:
            inputs = list(node.inputs())[node.kind() == "prim::CallFunction" :]
            if position >= len(inputs):
                return None
            found.append((inputs[position], caller))
        return found

    def _calls_of(self, called: str) -> list[tuple[Node, str]]:
        if self._calls is None:
            self._calls = defaultdict(list)
            for function, node, operator in self._used:
                if operator in _CALLS:
                    self._calls[_called(node)].append((node, function))
        return self._calls.get(called, [])

    def _results(self, node: Node, position: int) -> Sequence[Place] | None:
        results = [(list(self._graphs[each].outputs()), each) for each in self.called(node)]
        if not results or any(position >= len(outputs) for outputs, _ in results):
            return None
        return [(outputs[position], each) for outputs, each in results]


def _called(node: Node) -> str:
    """Return the name of the function or method that is called; that of its interface is `_INTERFACE`."""
    receiver = next(iter(node.inputs())).type()
    if node.kind() == "prim::CallFunction":
        return str(receiver.annotation_str)
    known = receiver.kind() == "ClassType"
    return f"{receiver.annotation_str if known else _INTERFACE}.{node.s('name')}"


def _carried(loop: Node, position: int, function: str) -> Sequence[Place]:
    """Return what a loop's variable is before the first and after each iteration."""
    body = next(iter(loop.blocks()))
    return [(_at(loop.inputs(), position + 2), function), (_at(body.outputs(), position + 1), function)]


def _loop_variables(graph: Any) -> Iterator[tuple[str, tuple[Node, int]]]:  # noqa: ANN401
    """Yield the parameters of loops, each with its loop and position; -1 is the number of the iteration."""
    for node in nodes(graph):
        if node.kind() == "prim::Loop":
            for position, each in enumerate(next(iter(node.blocks())).inputs(), start=-1):
                yield each.debugName(), (node, position)


def _at(values: Iterable[Value], position: int) -> Value:
    return list(values)[position]
