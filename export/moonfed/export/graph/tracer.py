"""Tracing of a training plan's methods to straight-line graphs of torch's operators.

A method of the eager plan runs once on fake tensors, which have a shape and a layout but no values, and whose batch is
a symbol; numbers that change between rounds are symbols, too. torch.fx records the operators above autograd, so that
gradients stay one instruction. What the method reads of the plan becomes an input of the graph, and what it assigns to
the plan's attributes is kept for the graphs that follow in the round.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from moonfed.plan.interface import CHANNELS_LAST

Argument = Any  # a tensor or a number, or lists and mappings of them
Number = Any  # int, float, torch.SymInt or torch.SymFloat
Stored = dict[str, Any]  # tensors and symbols by the path of the attribute that holds them
_SYMBOLS = (torch.SymInt, torch.SymFloat)
_OF_MODULES = frozenset(torch.nn.Module().__dict__)
_PLAIN = (bool, int, float, str)

_library = torch.library.Library("moonfed_tracing", "DEF")  # type: ignore[no-untyped-call]
_library.define("grad(Tensor loss, Tensor[] parameters) -> Tensor[]")  # type: ignore[no-untyped-call]
_library.define("mark(Tensor found) -> Tensor")  # type: ignore[no-untyped-call]


def _like(_: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(each) for each in parameters]


for _key in ("CompositeExplicitAutograd", "Meta"):
    _library.impl("grad", _like, _key)  # type: ignore[no-untyped-call]
_library.impl("mark", torch.ops.aten.alias, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
for _optimiser in ("moonfed::sgd_", "moonfed::adam_"):
    torch.library.register_fake(_optimiser, lambda *_, **__: None)  # which takes symbols for its numbers


# Stand-ins for recurrent layers, whose fakes would take every step of a series: they have the results' shapes, layout
# and dependences.
_SIZES = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
_library.define(f"gru(Tensor input, Tensor hx, Tensor[] params, {_SIZES}) -> (Tensor, Tensor)")  # type: ignore[no-untyped-call]
_library.define(f"lstm(Tensor input, Tensor[] hx, Tensor[] params, {_SIZES}) -> (Tensor, Tensor, Tensor)")  # type: ignore[no-untyped-call]


def _recurrent(
    inputs: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    *options: bool | int | float,
) -> tuple[torch.Tensor, ...]:
    both, batch_first = options[-2:]
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    sums = [tensor.sum() for tensor in (inputs, *states, *weights)]
    total = torch.stack([each.to(states[0].dtype) for each in sums]).sum()
    sides = inputs.transpose(0, 1).shape[:2] if batch_first else inputs.shape[:2]
    found = total + torch.zeros([*sides, states[0].size(2) * (2 if both else 1)], dtype=states[0].dtype)
    return (found.transpose(0, 1) if batch_first else found, *(state + total for state in states))


for _layer in ("gru", "lstm"):
    _library.impl(_layer, _recurrent, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]


class Untraceable(Exception):
    """A plan that no graph can express; the message says why, as a clause."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A method as torch.fx recorded it.

    `inputs`: the names of what a placeholder or a constant of the graph stands for, by its fx name. `constants`: those
    that are values of their own. `outputs`, `kept`: the results and the assigned attributes by name, as fx nodes or
    plain numbers.
    """

    graph: torch.fx.Graph
    inputs: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    outputs: Mapping[str, Sequence[Any]]
    kept: Mapping[str, Any]


class Tracer:
    """A fake copy of a plan, whose methods are traced one after another, as a device calls them in a round."""

    def __init__(self, plan: torch.nn.Module, memory_format: str, hints: Mapping[str, float], batch: int) -> None:
        """`hints`: hyperparameters, which decide what branches are taken. `batch`: samples, likewise."""
        self._environment = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self._environment, allow_non_fake_inputs=True)
        self._names: dict[str, str] = {}  # of what symbols stand for
        memory = {id(tensor): self._copied(tensor, memory_format) for tensor in unique_tensors(plan)}
        self.plan: Any = copy.deepcopy(plan, dict(memory))
        self._tensors = {id(fake): f"tensor:{index}" for index, fake in enumerate(memory.values())}
        self._alive: list[Argument] = list(memory.values())  # so that no other object gets the identity of one
        self._kept: Stored = {}
        self.batch = self.number("batch", batch)
        self.hyperparameters = {name: self.number(f"hyperparameter:{name}", float(hints[name])) for name in hints}

    def number(self, name: str, hint: float) -> Number:
        """Return a symbol for a number, which is an int if the hint is one."""
        source = ConstantSource(f"{name}.{len(self._names)}")
        symbol = self._environment.create_unspecified_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        self._names[str(symbol)] = name
        make = self._environment.create_symintnode if isinstance(hint, int) else self._environment.create_symfloatnode
        return make(symbol, hint=hint, source=source)

    def tensor(self, *sides: Number, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a fake tensor for an argument."""
        with self.mode:
            return torch.empty(list(sides), dtype=dtype)

    def conditions(self) -> list[tuple[str, str, float]]:
        """Return what the traced branches assume of hyperparameters, such as ("mu", "!=", 0.0).

        Raises Untraceable for an assumption on another number, except for the size of the batch.
        """
        found: dict[tuple[str, str, float], None] = {}
        for guard in self._environment.guards:
            names = {self._names.get(str(symbol), str(symbol)) for symbol in guard.expr.free_symbols}
            if names <= {"batch"}:
                continue
            found[_condition(guard.expr, names)] = None
        return list(found)

    def trace(self, call: Callable[..., Mapping[str, Sequence[Any]]], **arguments: Argument) -> Traced:
        """Trace a call with arguments, which are tensors, numbers, or lists of them, by their names in graphs.

        `call` gets the arguments as torch.fx tracks them. Raises Untraceable if it cannot be traced, or changes what is
        not a tensor.
        """
        numbers = {
            **{f"kept:{path}": value for path, value in self._kept.items() if isinstance(value, _SYMBOLS)},
            **{f"hyperparameter:{name}": value for name, value in self.hyperparameters.items()},
        }
        flat = {**dict(_named(arguments)), **numbers}
        before, results = stored(self.plan), _Results()

        def run(*given: Argument) -> list[Any]:
            values = iter(given)
            outputs = call(**{name: _rebuilt(value, values) for name, value in arguments.items()})
            changed = {path: value for path, value in stored(self.plan).items() if before.get(path) is not value}
            return results.flatten(outputs, _first_paths(changed))

        with self.mode, _one_gradient(), _standing_in():
            try:
                module = proxy_tensor.make_fx(run, tracing_mode="symbolic", pre_dispatch=True)(*flat.values())
            except Exception as error:  # torch has many kinds
                raise Untraceable(_reason(error)) from error
        nodes = list(module.graph.nodes)
        outputs, kept = results.unflatten(nodes[-1].args[0])
        inputs = dict(zip((node.name for node in nodes if node.op == "placeholder"), flat, strict=True))
        known = {**self._tensors, **{id(value): f"kept:{path}" for path, value in self._kept.items()}}
        constants = dict[str, torch.Tensor]()
        for node in nodes:
            if node.op == "get_attr":
                constant = getattr(module, node.target)
                if id(constant) in known:
                    inputs[node.name] = known[id(constant)]
                else:
                    constants[node.name] = constant
        self._keep(results.kept)
        return Traced(module.graph, inputs, constants, outputs, kept)

    def _keep(self, kept: Stored) -> None:
        """Remember what a method assigned; numbers that were computed become symbols of their own."""
        for path, value in kept.items():
            if isinstance(value, _SYMBOLS):
                value = self.number(f"kept:{path}", value.node.hint)
                parent, _, name = path.rpartition(".")
                setattr(self.plan.get_submodule(parent), name, value)
            self._kept[path] = value
            self._alive.append(value)

    def _copied(self, tensor: torch.Tensor, memory_format: str) -> torch.Tensor:
        layout = (
            torch.channels_last if memory_format == CHANNELS_LAST and tensor.dim() == 4 else torch.contiguous_format
        )
        with self.mode:
            fake = torch.empty(tensor.shape, dtype=tensor.dtype).clone(memory_format=layout)
            return fake.requires_grad_(tensor.requires_grad)


class _Results:
    """The results of a call and what it keeps, as one list for torch.fx."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.kept: Stored = {}

    def flatten(self, outputs: Mapping[str, Sequence[Any]], kept: Stored) -> list[Any]:
        self.counts, self.kept = {name: len(values) for name, values in outputs.items()}, kept
        return [*chain.from_iterable(outputs.values()), *kept.values()]

    def unflatten(self, nodes: Sequence[Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        values = iter(nodes)
        outputs = {name: [next(values) for _ in range(count)] for name, count in self.counts.items()}
        return outputs, {path: next(values) for path in self.kept}


def unique_tensors(plan: torch.nn.Module) -> list[torch.Tensor]:
    """Return the plan's tensors, each once, in the order of graphs' `tensor:I`."""
    return list({id(each): each for each in stored(plan).values() if isinstance(each, torch.Tensor)}.values())


def stored(plan: torch.nn.Module) -> Stored:
    """Return all tensors and symbols that the plan's attributes hold, by path."""
    return {
        path: leaf for path, leaf in _attributes(plan) if isinstance(leaf, torch.Tensor | torch.SymInt | torch.SymFloat)
    }


def plain(plan: torch.nn.Module) -> dict[str, Any]:
    """Return the numbers and texts that the plan's attributes hold, by path."""
    return {path: leaf for path, leaf in _attributes(plan) if isinstance(leaf, _PLAIN)}


def _attributes(plan: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, module in plan.named_modules():
        own = {key: value for key, value in module.__dict__.items() if key not in _OF_MODULES}
        for store in (module._parameters, module._buffers, own):
            for key, value in store.items():
                yield from ((f"{name}.{key}{place}".lstrip("."), leaf) for place, leaf in _leaves(value))


def _leaves(value: Argument) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from ((f".{index}{place}", leaf) for place, leaf in _leaves(each))
    else:
        yield "", value


def _named(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
        if items is None:
            yield name, value
        else:
            yield from _named({f"{name}:{key}": each for key, each in items})


def _rebuilt(value: Argument, values: Iterator[Any]) -> Argument:
    if isinstance(value, Mapping):
        return {key: _rebuilt(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_rebuilt(each, values) for each in value]
    return next(values)


def _first_paths(found: Stored) -> Stored:
    """Keep the first path of each value."""
    paths = {id(value): path for path, value in reversed(found.items())}
    return {path: found[path] for path in paths.values()}


def _condition(expression: Argument, names: set[str]) -> tuple[str, str, float]:
    single = isinstance(expression, sympy.core.relational.Relational) and len(names) == 1
    name = next(iter(names))
    if single and name.startswith("hyperparameter:"):
        left, right, sign = expression.lhs, expression.rhs, expression.rel_op
        if left.is_number:
            left, right, sign = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        if left.is_symbol and right.is_number:
            return name.partition(":")[2], sign, float(right)
    raise Untraceable(f"it branches on {' and '.join(sorted(names))}")


@contextmanager
def _one_gradient() -> Iterator[None]:
    """Record torch.autograd.grad as one operator, of the parameters that the loss depends on."""
    original = torch.autograd.grad

    def grad(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], **_: Argument) -> list[Any]:
        torch.autograd.grad = original  # which torch calls by its name
        try:
            with proxy_tensor.disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
                gradients = original(outputs, list(inputs), allow_unused=True, retain_graph=True)
        finally:
            torch.autograd.grad = grad  # type: ignore[assignment]
        used = [tensor for tensor, gradient in zip(inputs, gradients, strict=True) if gradient is not None]
        found = iter(torch.ops.moonfed_tracing.grad(outputs[0], used) if used else [])
        return [None if gradient is None else next(found) for gradient in gradients]  # a list, as in scripts

    torch.autograd.grad = grad  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.autograd.grad = original


@contextmanager
def _standing_in() -> Iterator[None]:
    """Record the stand-ins for recurrent layers."""
    places = ((torch._VF, "gru"), (torch.ops.moonfed, "lstm"))
    originals = [getattr(owner, name) for owner, name in places]
    for owner, name in places:
        setattr(owner, name, getattr(torch.ops.moonfed_tracing, name))
    try:
        yield
    finally:
        for (owner, name), original in zip(places, originals, strict=True):
            setattr(owner, name, original)


def _reason(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
