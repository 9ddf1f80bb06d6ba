"""The container of a plan's graphs, graph/1, as JSON (docs/plan-interface.md)."""

from __future__ import annotations

import base64
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from moonfed.export.graph.rounds import Arguments, Round
from moonfed.export.graph.tracer import Traced, Untraceable, unique_tensors
from moonfed.export.network import exchanged_tensors
from moonfed.export.training_plan import TrainingPlan
from moonfed.plan.interface import MEMORY_FORMATS
from moonfed.version import GRAPH_PLAN_INTERFACE

Json = Any
Node = Any  # torch.fx.Node, whose arguments may be anything
_SCALARS: Mapping[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "truediv",
    operator.floordiv: "floordiv",
    operator.neg: "neg",
    operator.pow: "pow",
    math.trunc: "int",
    torch.sym_int: "int",
    torch.sym_float: "float",
    torch.sym_max: "max",
    torch.sym_min: "min",
    torch._sym_sqrt: "sqrt",  # type: ignore[attr-defined]
}
_MARK, _GRAD = torch.ops.moonfed_tracing.mark.default, torch.ops.moonfed_tracing.grad.default
_END = (1 << 63) - 1  # of a slice
_SIZE = torch.ops.aten.sym_size.int
_GRAD_MODE = torch._C._set_grad_enabled
_STANDING_IN = {
    "moonfed_tracing::gru": "aten::gru.input",
    "moonfed_tracing::lstm": "moonfed::lstm",
    "aten::lift_fresh_copy": "aten::clone",
}
_ARGUMENTS = {"previous_models": "previous"}


def container(plan: TrainingPlan, arguments: Arguments, rounds: Sequence[Round]) -> bytes:
    """Return the container of traced rounds; Untraceable if graph/1 cannot express a node."""
    tensors = _Tensors(plan)
    graphs: dict[str, int] = {}
    described = []
    for each in rounds:
        places = {}
        for method, traced in sorted(each.graphs.items()):
            text = _compact(_Graph(traced, tensors).described())
            places[method] = graphs.setdefault(text, len(graphs))
        formats = (
            MEMORY_FORMATS if len({one.start.memory_format for one in rounds}) == 1 else (each.start.memory_format,)
        )
        described += [{"memory_format": layout, **_round(each, places)} for layout in formats]
    head = {
        "format": GRAPH_PLAN_INTERFACE,
        "tensors": tensors.described(),
        "roles": {role: [list(spec.shape) for spec in specs] for role, specs in arguments.roles.items()},
        "hyperparameters": sorted(arguments.hyperparameters),
        "draws": plan.draws,
    }
    return f'{_compact(head)[:-1]},"graphs":[{",".join(graphs)}],"rounds":{_compact(described)}}}'.encode()


def _compact(described: Json) -> str:
    return json.dumps(described, separators=(",", ":"))


def _round(found: Round, graphs: Mapping[str, int]) -> Json:
    return {
        "scaled": found.scaled,
        "previous": found.start.previous,
        "roles": list(found.start.roles),
        "where": [list(condition) for condition in found.where],
        "reference_count": found.reference_count,
        "graphs": graphs,
    }


class _Tensors:
    """The persistent tensors: the plan's, and constants of its graphs."""

    def __init__(self, plan: TrainingPlan) -> None:
        sources = {
            id(tensor): f"{part}:{index}"
            for part, tensors in (("shared", plan.state), ("frozen", plan.frozen), ("personal", plan.personal))
            for index, tensor in enumerate(tensors)
        }
        written = {
            id(tensor)
            for module in (plan.prefix, plan.network, plan.own, plan.encoders)
            for tensor in exchanged_tensors(module).values()
        }
        self._described = [
            _described(tensor, sources.get(id(tensor)) or ("zeros" if id(tensor) in written else ""))
            for tensor in unique_tensors(plan)
        ]

    def constant(self, tensor: torch.Tensor) -> str:
        """Return the name of a constant, as an input of graphs."""
        if isinstance(tensor, FakeTensor):
            raise Untraceable("it keeps a tensor of one method for another without an attribute")
        found = _described(tensor, "")
        if found not in self._described:
            self._described.append(found)
        return f"tensor:{self._described.index(found)}"

    def described(self) -> list[Json]:
        return self._described


def _described(tensor: torch.Tensor, source: str) -> Json:
    described = {
        "shape": list(tensor.shape),
        "dtype": _name(tensor.dtype),
        "source": source or ("values" if bool(tensor.any()) else "zeros"),
        "trained": tensor.requires_grad,
    }
    if described["source"] == "values":
        described["values"] = base64.b64encode(tensor.detach().contiguous().numpy().tobytes()).decode()
    return described


class _Graph:
    """One traced method as graph/1 has it."""

    def __init__(self, traced: Traced, tensors: _Tensors) -> None:
        self._traced, self._tensors = traced, tensors
        self._ids: dict[str, list[int]] = {}  # of the values of a node, by its name
        self._next = 0
        self._sizes: dict[str, list[int]] = {}  # the values of sizes, by their symbols
        self._nodes: list[Json] = []
        self._lowered = 0

    def described(self) -> Json:
        nodes, sizes = _needed(self._traced)
        inputs: dict[str, list[str]] = {}  # nodes by the input that they stand for
        for node in nodes:
            if node.op in ("placeholder", "get_attr"):
                inputs.setdefault(self._input(node), []).append(node.name)
        for names in inputs.values():
            self._ids.update((name, [self._next]) for name in names)
            self._next += 1
        for symbol, (argument, dimension) in sizes.items():
            self._sizes[symbol] = self._emit(None, "aten::sym_size.int", [argument, dimension], {}, 1)
        for node in nodes:
            if node.op == "call_function":
                self._add(node)
        return {
            "inputs": list(inputs),
            "nodes": self._nodes,
            "lowered": len(self._nodes) if "references" in self._traced.outputs else self._lowered,
            "outputs": {name: [self._value(each) for each in values] for name, values in self._traced.outputs.items()},
            "kept": {name: self._value(value) for name, value in self._traced.kept.items()},
        }

    def _input(self, node: Node) -> str:
        if node.name in self._traced.constants:
            return self._tensors.constant(self._traced.constants[node.name])
        name = self._traced.inputs[node.name]
        first, colon, rest = name.partition(":")
        return f"{_ARGUMENTS.get(first, first)}{colon}{rest}"

    def _add(self, node: Node) -> None:
        target = node.target
        if target is operator.getitem:
            source, place = node.args
            self._ids[node.name] = [self._ids[source.name][place]]
        elif target is _MARK:
            self._ids[node.name], self._lowered = self._ids[node.args[0].name], len(self._nodes)
        elif _changes_nothing(node):
            self._ids[node.name] = self._ids[node.args[0].name]
        elif target is _SIZE and (known := self._sizes.get(str(node.meta["val"]))):
            self._ids[node.name] = known
        elif target is _GRAD_MODE:
            self._emit(node, "grad_mode", node.args, {}, 0)
        elif target is _GRAD:
            self._emit(node, "grad", node.args, {}, len(node.args[1]))
        elif isinstance(target, torch._ops.OpOverload):
            name = target._schema.name + (f".{target._schema.overload_name}" if target._schema.overload_name else "")
            name = _STANDING_IN.get(name, name)
            found = node.meta.get("val")
            count = len(found) if isinstance(found, list | tuple) else int(found is not None)
            self._emit(node, name, node.args, node.kwargs, count)
            if target is _SIZE:
                self._sizes[str(found)] = self._ids[node.name]
        elif target in _SCALARS:
            self._emit(node, f"scalar::{_SCALARS[target]}", node.args, {}, 1)
        else:
            raise Untraceable(f"it needs {target}")

    def _emit(
        self, node: Node | None, name: str, args: Iterable[Json], kwargs: Mapping[str, Json], results: int
    ) -> list[int]:
        self._nodes.append(
            {
                "op": name,
                "args": [self._argument(each) for each in args],
                "kwargs": {key: self._argument(value) for key, value in kwargs.items()},
                "results": results,
            }
        )
        ids = list(range(self._next, self._next + results))
        self._next += results
        if node is not None:
            self._ids[node.name] = ids
        return ids

    def _value(self, value: Json) -> int:
        if isinstance(value, torch.fx.Node):
            (found,) = self._ids[value.name]
            return found
        return self._emit(None, "scalar::float", [value], {}, 1)[0]

    def _argument(self, value: Json) -> Json:
        if isinstance(value, torch.fx.Node):
            return {"v": self._value(value)}
        if isinstance(value, list | tuple):
            return [self._argument(each) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or isinstance(value, bool | int | float):
            return value
        for kind, name in ((torch.dtype, "dtype"), (torch.layout, "layout"), (torch.memory_format, "memory_format")):
            if isinstance(value, kind):
                return {name: _name(value).removesuffix("_format")}
        if isinstance(value, torch.device):
            return {"device": "plan"}
        if isinstance(value, str):
            return {"string": value}
        raise Untraceable(f"an operator's argument is {value!r}")


def _needed(traced: Traced) -> tuple[list[Node], dict[str, tuple[Node, int]]]:
    """Return the nodes that have an effect or lead to one, and the sizes of arguments that they need.

    torch takes a size from any tensor that has it. Here it is that of the first argument that is needed anyway, by the
    size's symbol.
    """
    nodes = list(traced.graph.nodes)[:-1]
    sides = [
        (str(side), (node, dimension))
        for node in nodes
        if node.op == "placeholder"
        for dimension, side in enumerate(getattr(node.meta.get("val"), "shape", ()))
    ]
    of_arguments = {symbol for symbol, _ in sides}
    wanted = {
        each.name
        for values in (*traced.outputs.values(), traced.kept.values())
        for each in values
        if isinstance(each, torch.fx.Node)
    }
    found, sizes = [], set[str]()
    for node in reversed(nodes):
        if node.name in wanted or _acts(node):
            found.append(node)
            if node.target is _SIZE and str(node.meta["val"]) in of_arguments:
                sizes.add(str(node.meta["val"]))
            else:
                wanted.update(each.name for each in node.all_input_nodes)
    needed = [(symbol, place) for symbol, place in sides if symbol in sizes]
    needed.sort(key=lambda each: each[1][0].name not in wanted)
    places = dict(reversed(needed))
    arguments = [node for node, _ in places.values() if node.name not in wanted]
    return [*dict.fromkeys(arguments), *found[::-1]], places


def _changes_nothing(node: Node) -> bool:
    """Return whether a node is a view of all elements, which torch does not always record."""
    whole = node.target is torch.ops.aten.slice.Tensor and tuple(node.args[2:]) == (0, _END)
    return whole or node.target is torch.ops.aten.alias.default


def _acts(node: Node) -> bool:
    target = node.target
    if target is _GRAD_MODE or target is _MARK:
        return True
    random = isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags
    return isinstance(target, torch._ops.OpOverload) and (target._schema.is_mutable or random)


def _name(value: torch.dtype | torch.layout | torch.memory_format) -> str:
    return str(value).removeprefix("torch.")
