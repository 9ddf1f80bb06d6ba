"""Graphs as Python functions, generated from checked integers, operators and constants.

No text of the container becomes code: values, operators and constants are numbered, and the names of keyword arguments
are those of torch's schemas. Interpreting the nodes one by one would cost more than many operators do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from moonfed.plan.graph.arguments import Constant, Operand, PlanDevice
from moonfed.plan.graph.container import Input, Value
from moonfed.plan.graph.inspection import CheckedGraph, Instruction

Lower = Callable[[], AbstractContextManager[object]]


class Program:
    """A graph on one device, which is generated when it is first run."""

    def __init__(self, checked: CheckedGraph, device: torch.device) -> None:
        self._checked, self._device = checked, device
        self._function: Callable[..., tuple[Any, ...]] | None = None

    @property
    def inputs(self) -> Sequence[Input]:
        """The inputs that `run` takes, in this order."""
        return self._checked.graph.inputs

    def run(self, given: Sequence[object], lower: Lower) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        """Return the results and the values to keep, by name; nothing of either needs gradients.

        `given`: one value per input. `lower` returns the context in which the lowered nodes run.
        """
        if self._function is None:
            self._function = _generated(self._checked, self._device)
        graph = self._checked.graph
        with torch.enable_grad():  # restores the mode that the graph changes
            found = iter(self._function(lower, *given))
        outputs = {name: [_detached(next(found)) for _ in ids] for name, ids in graph.outputs.items()}
        return outputs, {name: _detached(value) for name, value in zip(graph.kept, found, strict=True)}


def _detached(value: Any) -> Any:  # noqa: ANN401 - a tensor or a number
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _generated(checked: CheckedGraph, device: torch.device) -> Callable[..., tuple[Any, ...]]:
    """Return the function of a graph: from `lower` and the inputs to the outputs and then the kept values."""
    namer = _Namer(device)
    graph = checked.graph
    results = [*(each for ids in graph.outputs.values() for each in ids), *graph.kept.values()]
    uses = list(_uses(checked, results))
    last = {value: at for at, used in enumerate(uses) for value in used}
    lines = [f"def graph({', '.join(['lower', *(f'v{each}' for each in range(len(graph.inputs)))])}):"]
    if graph.lowered:
        lines.append(" with lower():")
    following = len(graph.inputs)
    for at, instruction in enumerate(checked.instructions):
        indent = "  " if at < graph.lowered else " "
        made = range(following, following + instruction.results)
        following = made.stop
        lines.append(f"{indent}{_targets(instruction, made, last)}{namer.call(instruction)}")
        done = sorted({value for value in uses[at] if last[value] == at})
        dead = [value for value in made if value not in last] if len(made) > 1 else []
        if done or dead:
            lines.append(f"{indent}del {', '.join(f'v{value}' for value in (*done, *dead))}")
    lines.append(f" return ({''.join(f'v{value}, ' for value in results)})")
    exec(compile("\n".join(lines), "<graph>", "exec"), namer.names)  # noqa: S102 - numbers and schemas' names only
    function: Callable[..., tuple[Any, ...]] = namer.names["graph"]
    return function


def _uses(checked: CheckedGraph, results: Sequence[int]) -> Iterator[set[int]]:
    """Yield the values that each instruction uses, and at last those that are returned."""
    for instruction in checked.instructions:
        yield set(_values((instruction.args, tuple(operand for _, operand in instruction.kwargs))))
    yield set(results)


def _values(operand: Operand) -> Iterator[int]:
    if isinstance(operand, tuple):
        for each in operand:
            yield from _values(each)
    elif isinstance(operand, Value):
        yield operand.id


def _targets(instruction: Instruction, made: range, last: Mapping[int, int]) -> str:
    """Return what the results are assigned to; unpacking fails unless their number is right."""
    if instruction.unpacked:
        return f"[{', '.join(f'v{value}' for value in made)}] = "
    return f"v{made[0]} = " if made and made[0] in last else ""


class _Namer:
    """The names that generated code uses, and what they stand for."""

    def __init__(self, device: torch.device) -> None:
        self.names: dict[str, Any] = {}
        self._functions: dict[int, str] = {}
        self._device = device

    def call(self, instruction: Instruction) -> str:
        """Return the call of an instruction."""
        args = [self._operand(each) for each in instruction.args]
        kwargs = [f"{name}={self._operand(each)}" for name, each in instruction.kwargs]
        key = id(instruction.function)
        if key not in self._functions:
            self._functions[key] = self._named("f", instruction.function)
        return f"{self._functions[key]}({', '.join((*args, *kwargs))})"

    def _operand(self, operand: Operand) -> str:
        if isinstance(operand, Value):
            return f"v{operand.id}"
        if isinstance(operand, tuple):
            return f"[{', '.join(map(self._operand, operand))}]"
        if isinstance(operand, PlanDevice):
            return self._named("c", self._device)
        return self._constant(operand)

    def _constant(self, operand: Constant) -> str:
        return (
            repr(operand.value)
            if operand.value is None or type(operand.value) is bool
            else self._named("c", operand.value)
        )

    def _named(self, prefix: str, value: object) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name
