"""Mutants of a graph container: fields are replaced, and nodes inserted whose arguments have the types of a schema.

The bytes of an input are the seed of its changes, so that a finding is repeated by them. A mutant must be refused, or
load to a plan whose calls return or raise TrainingFailed; nothing may end the process.
"""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from functools import cache
from typing import Any

import torch

from moonfed.errors import TrainingFailed, UnsafePlan, VersionMismatch
from moonfed.plan.graph.arguments import STRINGS, Parameter
from moonfed.plan.graph.container import NAMED, read_container
from moonfed.plan.graph.inspection import inspected, operator_of
from moonfed.plan.graph.plan import GraphPlan
from moonfed.plan.inspection.operator_list import allowed_operators
from tests.support.graph_containers import CLASSES, FEATURES, LATER_BEGIN, Json, linear

# Sizes are small, or too large for any memory: those between would only take long.
INTEGERS = (0, 1, 2, 3, 4, 7, -1, -2, -3, 255, 1 << 44, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 50)
FLOATS = (0.0, 0.5, 1.0, -1.0, 2.0, 1e-30, 1e30, -1e300, 1e308)
OTHERS: tuple[object, ...] = (
    *(None, True, False, "", "x", "tensor:0", "kept:seen", "inputs", "steps", "aten::relu", "grad", "scalar::pow"),
    *([], {}, [0], [[1, 2]], {"v": 0}, {"v": 3}, {"v": 1000}, {"dtype": "int64"}, {"device": "plan"}),
    *({"float": "inf"}, {"float": "-inf"}, {"string": "none"}, {"memory_format": "channels_last"}, {"dtype": 5}),
)
WORDS = {kind: tuple(sorted(names or ())) for kind, names in NAMED.items()}
TEXTS = (
    "none",
    "tanh",
    "constant",
    "reflect",
    "replicate",
    "circular",
    "floor",
    "same",
    "ij,jk->ik",
    "ij",
    "fro",
    "add",
)
_KINDS = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format", "Device": "device"}
UNCHANGED = b"0123456789abcdef"
Path = tuple[Any, ...]  # of names and positions


@cache
def operators() -> tuple[tuple[str, Any], ...]:
    """Return the operators that graphs may call, and their schemas."""
    torch_c: Any = torch._C
    found = []
    for schema in torch_c._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if {name, f"{schema.name}.*"} & allowed_operators():
            with suppress(UnsafePlan, VersionMismatch):
                operator_of(name)
                found.append((name, schema))
    return tuple(sorted(found, key=lambda each: each[0]))


def mutant(content: bytes) -> bytes:
    """Return the container that the bytes stand for; UNCHANGED is that of the seed."""
    plan = linear()
    if content != UNCHANGED:
        chosen = random.Random(content)
        if chosen.random() < 0.8:  # quicker without later rounds
            del plan["graphs"][LATER_BEGIN:], plan["rounds"][1:]
        for _ in range(chosen.choice((1, 1, 2, 3, 6))):
            if chosen.random() < 0.3:
                _replace(chosen, plan)
            else:
                _insert(chosen, plan)
    return json.dumps(plan).encode()


def _replace(chosen: random.Random, plan: Json) -> None:
    """Replace, remove or repeat one field."""
    path = _path(chosen, plan)
    at: Any = plan
    for name in path[:-1]:
        at = at[name]
    last = path[-1]
    kind = chosen.randrange(8)
    if kind == 0:
        del at[last]
    elif kind == 1 and isinstance(at, list):
        at.insert(chosen.randrange(len(at) + 1), copy.deepcopy(at[last]))
    elif kind < 4 and isinstance(at, list):
        other = chosen.randrange(len(at))
        at[last], at[other] = at[other], at[last]
    elif type(at[last]) is int or kind < 6:
        at[last] = chosen.choice(INTEGERS)
    else:
        at[last] = copy.deepcopy(chosen.choice((*OTHERS, *FLOATS)))


def _path(chosen: random.Random, plan: Json) -> Path:
    """Return the way to some field, mostly of a graph."""
    path: list[Any] = ["graphs"] if "graphs" in plan and chosen.random() < 0.7 else [chosen.choice(sorted(plan))]
    at = plan[path[0]]
    while isinstance(at, dict | list) and at and chosen.random() < 0.9:
        path.append(chosen.choice(sorted(at)) if isinstance(at, dict) else chosen.randrange(len(at)))
        at = at[path[-1]]
    return tuple(path)


def _insert(chosen: random.Random, plan: Json) -> None:
    """Insert calls of operators at the end of a graph, each of which may use the results of those before it."""
    with suppress(KeyError, TypeError, IndexError, AttributeError):  # an earlier change took a field away
        made = chosen.choice(plan["graphs"])
        for _ in range(chosen.choice((1, 2, 3, 5))):
            values = len(made["inputs"]) + sum(each["results"] for each in made["nodes"])
            made["nodes"].append(_filled(chosen) if chosen.random() < 0.3 else _call(chosen, values))
            results = made["nodes"][-1]["results"]
            for ids in made["outputs"].values():
                if results and chosen.random() < 0.5:
                    ids[0] = values + chosen.randrange(results)


def _filled(chosen: random.Random) -> Json:
    """Return a call that makes a tensor."""
    shape = [chosen.choice((0, 1, 1, 2, 3, 4, 5)) for _ in range(chosen.randrange(6))]
    dtype = chosen.choice(("float32", "float32", "int64", "bool", *WORDS["dtype"]))
    return {
        "op": "aten::full",
        "args": [shape, chosen.choice((0, 1, 2, 7))],
        "kwargs": {"dtype": {"dtype": dtype}},
        "results": 1,
    }


def _call(chosen: random.Random, values: int) -> Json:
    name, schema = chosen.choice(operators())
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for declared in schema.arguments:
        parameter = Parameter.of(declared)
        if not parameter.required and chosen.random() < 0.5:
            if not parameter.keyword_only and not kwargs:
                kwargs[parameter.name] = _argument(chosen, parameter, values)
            continue
        given = _argument(chosen, parameter, values)
        if parameter.keyword_only or kwargs:
            kwargs[parameter.name] = given
        else:
            args.append(given)
    lists = str(schema.returns[0].type) == "List[Tensor]" if schema.returns else False
    results = chosen.randrange(1, 5) if lists else len(schema.returns)
    return {"op": name, "args": args, "kwargs": kwargs, "results": results}


def _argument(chosen: random.Random, parameter: Parameter, values: int) -> object:
    if parameter.optional and chosen.random() < 0.4:
        return None
    if parameter.type.startswith("List["):
        inner = parameter.type.removeprefix("List[").removesuffix("]").removeprefix("Optional[").removesuffix("]")
        length = parameter.length or chosen.choice((0, 1, 2, 2, 3, 4))
        return [_element(chosen, inner, parameter.name, values) for _ in range(length)]
    return _element(chosen, parameter.type, parameter.name, values)


def _element(chosen: random.Random, kind: str, name: str, values: int) -> object:
    if kind == "Tensor" or chosen.random() < 0.03:
        return {"v": chosen.randrange(max(values, 1))} if chosen.random() < 0.9 else chosen.choice(FLOATS)
    if kind in _KINDS:
        return {_KINDS[kind]: chosen.choice(WORDS[_KINDS[kind]])}
    if kind == "str":
        return {"string": chosen.choice([text for text in TEXTS if STRINGS[name].fullmatch(text)] or ["x"])}
    if kind == "bool":
        return chosen.random() < 0.5
    if kind == "float" or (kind == "number" and chosen.random() < 0.5):
        return chosen.choice(FLOATS)
    return chosen.choice(INTEGERS[:9]) if chosen.random() < 0.8 else chosen.choice(INTEGERS)


def load_and_run(content: bytes) -> None:
    """Load a container, and make each call of a round; errors of the plan are none."""
    container = read_container(content)
    checked = inspected(container)
    try:
        plan = GraphPlan(container, checked, torch.device("cpu"))
    except RuntimeError as error:
        raise TrainingFailed(str(error)) from error
    inputs, targets = torch.ones(5, FEATURES), torch.zeros(5, dtype=torch.int64)
    model, empty = [torch.ones(CLASSES, FEATURES), torch.ones(CLASSES)], torch.empty(0)
    later: tuple[list[list[torch.Tensor]], dict[str, list[torch.Tensor]]] = (
        [model],
        {"variate": [torch.ones(CLASSES)]},
    )
    for previous, received in (([], {}), later):
        with suppress(TrainingFailed):
            plan.begin_round(model, previous, received, {"learning_rate": 0.1, "mu": 0.5}, 2)
            for call in (
                lambda: plan.survey(inputs, targets, 0),
                lambda: plan.references(inputs, empty),
                lambda: plan.step(inputs, targets, empty, empty),
                lambda: plan.step(inputs, targets, torch.ones(5, CLASSES), empty),
                lambda: plan.survey(inputs, targets, 2),
                lambda: plan.end_round(2),
                plan.metrics,
                lambda: plan.evaluate(inputs, targets),
                lambda: plan.metric(torch.ones(2), 5),
                lambda: plan.predict(inputs),
            ):
                with suppress(TrainingFailed):
                    call()


def load_and_run_mutant(content: bytes) -> None:
    """Load and run the container that the bytes stand for."""
    load_and_run(mutant(content))
