"""Inspection of a container before any of it runs: every node becomes an instruction that is safe to execute.

Only reviewed operators of tensors are allowed, and no backward ones: with made-up arguments, those read and write
beyond tensors, and autograd, which never calls them so, is reached by one instruction. Values are used after they are
made; each argument has its parameter's type; the entry points of a round have the inputs and results of their calls.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import torch

import moonfed.plan.custom_operators  # noqa: F401 - defines moonfed::sgd_, which plans may call
from moonfed.errors import VersionMismatch
from moonfed.plan.graph.arguments import Checker, Constant, Kind, Operand, Parameter
from moonfed.plan.graph.container import (
    SHARED,
    Condition,
    Container,
    Graph,
    Input,
    Node,
    Round,
    Value,
    fail,
)
from moonfed.plan.graph.scalars import SCALARS, set_grad_mode
from moonfed.plan.inspection.operator_list import allowed_operators, require_none

_SIZES = frozenset({"aten::sym_size.int"})  # `size` of a script, as a number: it reads no element
MAXIMUM_CHAIN = 16  # graphs of which each reads what the one before it keeps
MAXIMUM_ALIKE = 16  # rounds that only their conditions distinguish
ENTRY_INPUTS: Mapping[str, frozenset[str]] = {  # what each is given, besides tensors, kept values and hyperparameters
    "begin": frozenset({"model", "previous", "received", "steps"}),
    "references": frozenset({"inputs", "draws"}),
    "step": frozenset({"inputs", "targets", "references", "draws"}),
    "step_kept": frozenset({"inputs", "targets", "references", "draws"}),
    "survey_first": frozenset({"inputs", "targets", "steps"}),
    "survey_last": frozenset({"inputs", "targets", "steps"}),
    "end": frozenset({"steps"}),
    "metrics": frozenset(),
    "evaluate": frozenset({"inputs", "targets"}),
    "predict": frozenset({"inputs"}),
    "metric": frozenset({"sums", "samples"}),
}
_ALWAYS = frozenset({"tensor", "kept", "hyperparameter"})
OUTPUTS: Mapping[str, str | None] = {  # the name of the only result; None: any number of any name
    "references": "references",
    "step": "loss",
    "step_kept": "loss",
    "end": None,
    "metrics": None,
    "evaluate": "sums",
    "predict": "outputs",
    "metric": "metric",
}
_BEFORE: Mapping[str, tuple[str, ...]] = {  # the entry points that always ran before, besides begin
    "step": ("survey_first",),
    "references": ("survey_first",),
    "step_kept": ("survey_first", "references"),
    "survey_last": ("survey_first",),
    "end": ("survey_first", "survey_last"),
    "metrics": ("survey_first", "survey_last"),
}
_INPUT_KINDS: Mapping[str, Kind] = {"steps": Kind.INT, "samples": Kind.INT, "hyperparameter": Kind.FLOAT}
_RESULTS: Mapping[str, Kind] = {"Tensor": Kind.TENSOR, "int": Kind.INT, "float": Kind.FLOAT, "number": Kind.NUMBER}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One call; `unpacked`: it returns a sequence of its results, otherwise one result or none."""

    function: Callable[..., object]
    args: tuple[Operand, ...]
    kwargs: tuple[tuple[str, Operand], ...]
    results: int
    unpacked: bool


@dataclass(frozen=True, slots=True)
class Needs:
    """The inputs of a graph, in short."""

    kinds: frozenset[str]
    kept: frozenset[str]
    roles: frozenset[str]
    previous: int  # models

    @classmethod
    def of(cls, graph: Graph) -> Needs:
        """Return the needs of a graph."""
        return cls(
            kinds=frozenset(each.kind for each in graph.inputs),
            kept=frozenset(each.name for each in graph.inputs if each.kind == "kept"),
            roles=frozenset(each.name for each in graph.inputs if each.kind == "received"),
            previous=max((each.model + 1 for each in graph.inputs if each.kind == "previous"), default=0),
        )


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """A graph that is safe to run."""

    graph: Graph
    needs: Needs
    instructions: tuple[Instruction, ...]
    kinds: tuple[Kind, ...]  # of all values


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of this torch."""

    function: Callable[..., object]
    parameters: tuple[Parameter, ...]
    results: tuple[Kind, ...] | None  # None: a list of tensors, or of one kind
    unpacked: bool


def inspected(container: Container) -> tuple[CheckedGraph, ...]:
    """Return the graphs as instructions; UnsafePlan or VersionMismatch if any of the container must not run."""
    _require_operators(container.graphs)
    checked = _checked_graphs(container)
    for position, one in enumerate(container.rounds):
        _require_round(container, checked, one, f"rounds[{position}]")
    _require_distinct(container.rounds)
    return checked


def _require_operators(graphs: Iterable[Graph]) -> None:
    found = {node.operator for graph in graphs for node in graph.nodes if "::" in node.operator}
    found = {name for name in found if not name.startswith("scalar::")}
    allowed = allowed_operators() | _SIZES
    require_none(
        [name for name in found if "backward" in name or not ({name, f"{name.partition('.')[0]}.*"} & allowed)]
    )
    for name in sorted(found):
        operator_of(name)


@cache
def operator_of(name: str) -> Operator:
    """Return an allowed operator; VersionMismatch if this torch lacks it, UnsafePlan if it is not one of tensors."""
    torch_c: Any = torch._C
    plain, _, overload = name.partition(".")
    if not torch_c._dispatch_has_kernel(name):  # as of TorchScript's language
        known = [schema.overload_name for schema in torch_c._jit_get_schemas_for_operator(plain)]
        if overload in known:
            require_none([name])
        raise VersionMismatch(
            f"this plan calls {name}, which torch {torch.__version__} of this device lacks",
            field="operator",
            value=name,
        )
    space, _, word = plain.partition("::")
    function: Any = getattr(getattr(getattr(torch.ops, space), word), overload or "default")
    schema = function._schema
    parameters = tuple(map(Parameter.of, schema.arguments))
    written_out = any(argument.is_out for argument in schema.arguments)
    if written_out and name not in allowed_operators():
        require_none([name])
    kinds = [str(result.real_type) for result in schema.returns]
    lists = kinds == ["List[Tensor]"]
    if not lists and not all(kind in _RESULTS for kind in kinds):
        require_none([name])
    return Operator(
        function=function._op,
        parameters=parameters,
        results=None if lists else tuple(_RESULTS[kind] for kind in kinds),
        unpacked=lists or len(kinds) > 1,
    )


def _checked_graphs(container: Container) -> tuple[CheckedGraph, ...]:
    """Check graphs in an order in which the kinds of the kept values that they read are known."""
    shared = len(container.places(SHARED))
    numbers = {"tensor": len(container.tensors), "model": shared, "previous": shared}
    kept: dict[str, Kind] = {}
    checked: dict[int, CheckedGraph] = {}
    pending = list(range(len(container.graphs)))
    for _ in range(MAXIMUM_CHAIN):
        ready = [
            at
            for at in pending
            if all(each.name in kept for each in container.graphs[at].inputs if each.kind == "kept")
        ]
        for at in ready:
            checked[at] = _GraphCheck(container, numbers, at, kept).run()
            for name, each in container.graphs[at].kept.items():
                kind = checked[at].kinds[each]
                if kept.setdefault(name, kind) is not kind:
                    fail(f"graphs[{at}].kept.{name}", kind.value, f"{kept[name].value}, as elsewhere")
        pending = [at for at in pending if at not in checked]
    lacking = [each.name for at in pending for each in container.graphs[at].inputs if each.kind == "kept"]
    if pending:
        fail("kept value", next((name for name in lacking if name not in kept), lacking[0]), "kept by a graph before")
    return tuple(checked[at] for at in range(len(container.graphs)))


class _GraphCheck:
    """The check of one graph, node by node."""

    def __init__(self, container: Container, numbers: Mapping[str, int], at: int, kept: Mapping[str, Kind]) -> None:
        self._container, self._numbers, self._kept = container, numbers, kept
        self._graph, self._where = container.graphs[at], f"graphs[{at}]"
        self._kinds: list[Kind] = []
        self._checker = Checker(self._kinds)

    def run(self) -> CheckedGraph:
        """Return the graph as instructions."""
        for position, given in enumerate(self._graph.inputs):
            self._kinds.append(self._input(given, f"{self._where}.inputs[{position}]"))
        instructions = []
        for position, node in enumerate(self._graph.nodes):
            instruction, kinds = self._node(node, f"{self._where}.nodes[{position}]")
            instructions.append(instruction)
            self._kinds.extend(kinds)
        for name, ids in [*self._graph.outputs.items(), *((name, (at,)) for name, at in self._graph.kept.items())]:
            for each in ids:
                if each >= len(self._kinds):
                    fail(f"{self._where}'s result {name}", each, "the id of a value")
        return CheckedGraph(self._graph, Needs.of(self._graph), tuple(instructions), tuple(self._kinds))

    def _input(self, given: Input, where: str) -> Kind:
        container = self._container
        limit = len(container.roles.get(given.name, ())) if given.kind == "received" else self._numbers.get(given.kind)
        if limit is not None and given.index >= limit:
            fail(where, str(given), "a tensor that the plan has")
        if given.kind == "hyperparameter" and given.name not in container.hyperparameters:
            fail(where, str(given), "a hyperparameter that the plan has")
        return self._kept[given.name] if given.kind == "kept" else _INPUT_KINDS.get(given.kind, Kind.TENSOR)

    def _node(self, node: Node, where: str) -> tuple[Instruction, Sequence[Kind]]:
        if node.operator == "grad":
            return self._grad(node, where)
        if node.operator == "grad_mode" or node.operator.startswith("scalar::"):
            return self._arithmetic(node, where)
        operator = operator_of(node.operator)
        args, kwargs = self._arguments(node, operator.parameters, where)
        kinds = [Kind.TENSOR] * node.results if operator.results is None else operator.results
        if node.results != len(kinds):
            fail(f"{where}.results", node.results, f"{len(kinds)}, as {node.operator} has")
        return Instruction(operator.function, args, kwargs, node.results, operator.unpacked), kinds

    def _arguments(
        self, node: Node, parameters: Sequence[Parameter], where: str
    ) -> tuple[tuple[Operand, ...], tuple[tuple[str, Operand], ...]]:
        positional = [parameter for parameter in parameters if not parameter.keyword_only]
        if len(node.args) > len(positional):
            fail(f"{where}.args", f"{len(node.args)} arguments", f"at most {len(positional)}, as {node.operator} has")
        by_name = {parameter.name: parameter for parameter in parameters[len(node.args) :]}
        for name in node.kwargs:
            if name not in by_name:
                fail(f"{where}.kwargs", name, f"another argument that {node.operator} has")
        for name, parameter in by_name.items():
            if parameter.required and name not in node.kwargs:
                fail(f"{where}.kwargs", sorted(node.kwargs), f"with {name}, which {node.operator} needs")
        operand = self._checker.operand
        args = zip(node.args, positional, strict=False)
        return (
            tuple(operand(given, each, f"{where}.args[{at}]") for at, (given, each) in enumerate(args)),
            tuple((name, operand(given, by_name[name], f"{where}.{name}")) for name, given in node.kwargs.items()),
        )

    def _grad(self, node: Node, where: str) -> tuple[Instruction, Sequence[Kind]]:
        parameters = node.args[1] if len(node.args) == 2 else None
        if not isinstance(parameters, tuple) or node.kwargs or not parameters:
            fail(f"{where}.args", list(node.args), "a loss and a list of trained tensors")
        loss = self._checker.value(node.args[0], f"{where}.args[0]", Kind.TENSOR)
        for position, each in enumerate(parameters):
            place = f"{where}.args[1][{position}]"
            value = self._checker.value(each, place, Kind.TENSOR)
            given = self._graph.inputs[value.id] if value.id < len(self._graph.inputs) else None
            if given is None or given.kind != "tensor" or not self._container.tensors[given.index].trained:
                fail(place, str(given) if given else "a computed value", "a trained tensor")
        if node.results != len(parameters):
            fail(f"{where}.results", node.results, f"{len(parameters)}, one for each trained tensor")
        values = tuple(each for each in parameters if isinstance(each, Value))
        instruction = Instruction(torch.autograd.grad, ((loss,), values), (), node.results, unpacked=True)
        return instruction, [Kind.TENSOR] * node.results

    def _arithmetic(self, node: Node, where: str) -> tuple[Instruction, Sequence[Kind]]:
        if node.operator == "grad_mode":
            if len(node.args) != 1 or type(node.args[0]) is not bool or node.kwargs or node.results:
                fail(f"{where}.args", list(node.args), "true or false, without results")
            return Instruction(set_grad_mode, (Constant(node.args[0]),), (), 0, unpacked=False), ()
        scalar = SCALARS.get(node.operator)
        if scalar is None:
            fail("operator", node.operator, f"one of {', '.join(SCALARS)}")
        if len(node.args) != scalar.arguments or node.kwargs or node.results != 1:
            fail(f"{where}.args", list(node.args), f"{scalar.arguments} numbers, with one result")
        operands = tuple(self._checker.number(each, f"{where}.args[{at}]") for at, each in enumerate(node.args))
        kind = scalar.kind([self._checker.kind(each) for each in operands])
        return Instruction(scalar.function, operands, (), 1, unpacked=False), (kind,)


def _require_round(container: Container, checked: Sequence[CheckedGraph], one: Round, where: str) -> None:
    for role in one.roles:
        if role not in container.roles:
            fail(f"{where}.roles", role, "a role that the plan has")
    for condition in one.where:
        if condition.name not in container.hyperparameters:
            fail(f"{where}.where", condition.name, "a hyperparameter that the plan has")
    for entry, at in one.graphs.items():
        if at >= len(checked):
            fail(f"{where}.graphs.{entry}", at, "the position of a graph")
    if one.reference_count and not {"references", "step_kept"} <= set(one.graphs):
        fail(f"{where}.reference_count", one.reference_count, "0 without the graphs references and step_kept")
    for entry, at in one.graphs.items():
        _require_inputs(checked, one, entry, f"{where}.graphs.{entry}")
        _require_outputs(checked[at], entry, f"{where}.graphs.{entry}")


def _require_inputs(checked: Sequence[CheckedGraph], one: Round, entry: str, where: str) -> None:
    needs = checked[one.graphs[entry]].needs
    before = ("begin", *_BEFORE.get(entry, ())) if entry != "begin" else ()
    stored = [checked[one.graphs[each]].graph.kept for each in before if each in one.graphs]
    if unknown := needs.kinds - _ALWAYS - ENTRY_INPUTS[entry]:
        fail(where, min(unknown), "a graph whose inputs this call has")
    if unknown := needs.kept.difference(*stored):
        fail(where, f"kept:{min(unknown)}", "a graph whose kept values were stored before")
    if needs.previous > one.previous:
        fail(where, f"previous:{needs.previous - 1}", f"a graph that uses at most {one.previous} previous models")
    if unknown := needs.roles.difference(one.roles):
        fail(where, f"received:{min(unknown)}", "a graph that uses the round's roles")


def _require_outputs(checked: CheckedGraph, entry: str, where: str) -> None:
    outputs = checked.graph.outputs
    if entry not in OUTPUTS:
        if outputs:
            fail(where, sorted(outputs), "a graph without results")
        return
    only = OUTPUTS[entry]
    if only is not None and set(outputs) != {only}:
        fail(where, sorted(outputs), f"a graph with the result {only}")
    if entry == "end" and "model" not in outputs:
        fail(where, sorted(outputs), "a graph with the result model")
    for name, ids in outputs.items():
        if entry != "end" and len(ids) != 1:
            fail(where, f"{len(ids)} values of {name}", "a graph with one value for each result")
        for each in ids:
            if checked.kinds[each] is not Kind.TENSOR and entry not in ("metrics", "metric"):
                fail(where, checked.kinds[each].value, f"a graph whose {name} is a tensor")


def _require_distinct(rounds: Sequence[Round]) -> None:
    """Require that no two rounds fit at once."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, one in enumerate(rounds):
        alike[(one.memory_format, one.scaled, one.previous, one.roles)].append(at)
    for group in alike.values():
        if len(group) > MAXIMUM_ALIKE:
            fail("number of rounds that only their conditions distinguish", len(group), f"at most {MAXIMUM_ALIKE}")
        for first, second in combinations(group, 2):
            if _satisfiable((*rounds[first].where, *rounds[second].where)):
                fail(f"rounds[{second}].where", f"met whenever rounds[{first}].where is", "one that excludes it")


def _satisfiable(conditions: Sequence[Condition]) -> bool:
    """Return whether hyperparameters exist that meet all conditions: one of the numbers next to the limits does."""
    by_name: dict[str, list[Condition]] = defaultdict(list)
    for condition in conditions:
        by_name[condition.name].append(condition)
    return all(
        any(
            all(meets(candidate, condition) for condition in of_name)
            for each in of_name
            for candidate in (each.value, math.nextafter(each.value, math.inf), math.nextafter(each.value, -math.inf))
        )
        for of_name in by_name.values()
    )


def meets(value: float, condition: Condition) -> bool:
    """Return whether a hyperparameter's value meets a condition."""
    limit = condition.value
    results = {
        "==": value == limit,
        "!=": value != limit,
        "<": value < limit,
        "<=": value <= limit,
        ">": value > limit,
        ">=": value >= limit,
    }
    return results[condition.comparison]
