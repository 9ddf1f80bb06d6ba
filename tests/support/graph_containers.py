"""Small graph containers, written by hand: a linear classifier with SGD, and changes of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from moonfed.bundle.manifest import GRAPH_PLAN_FILE
from moonfed.errors import UnsafePlan
from moonfed.plan.interface import load_plan

CLASSES, FEATURES = 3, 4
Json = dict[str, Any]
Change = Callable[[Json], None]
# positions of the graphs
BEGIN, STEP, SURVEY, END, METRICS, EVALUATE, PREDICT, METRIC = range(8)
LATER_BEGIN, REFERENCES, LATER_STEP, STEP_KEPT, LATER_END = range(8, 13)
PREDICTION = ["tensor:0", "tensor:1", "tensor:2", "inputs"]


def v(number: int) -> Json:
    """Return the argument that is a value."""
    return {"v": number}


def node(operator: str, *args: object, results: int = 1, **kwargs: object) -> Json:
    """Return a node."""
    return {"op": operator, "args": list(args), "kwargs": kwargs, "results": results}


def graph(
    inputs: Sequence[str],
    *nodes: Json,
    outputs: dict[str, list[int]] | None = None,
    kept: dict[str, int] | None = None,
    lowered: int = 0,
) -> Json:
    """Return a graph."""
    return {
        "inputs": list(inputs),
        "nodes": list(nodes),
        "lowered": lowered,
        "outputs": outputs or {},
        "kept": kept or {},
    }


def written(directory: Path, container: object) -> Path:
    """Write a container, or bytes in its place, to the file of a plan."""
    path = directory / GRAPH_PLAN_FILE
    path.write_bytes(container if isinstance(container, bytes) else json.dumps(container).encode())
    return path


def linear() -> Json:
    """Return a plan that trains a linear classifier by SGD with momentum.

    In later rounds, it also adds mu times the mean squared distance of its outputs to those of the previous model, and
    the variate to the bias's gradient. Surveys sum the inputs; the last tensor scales the inputs.
    """
    scale = base64.b64encode(np.full(FEATURES, 0.5, "<f4").tobytes()).decode()
    shapes = [[CLASSES, FEATURES], [CLASSES]]
    names = ("begin", "step", "survey", "end", "metrics", "evaluate", "predict", "metric")
    graphs = [
        _begin(later=False),
        _step(),
        _survey(),
        _end(later=False),
        _metrics(),
        _evaluate(),
        _predict(),
        _metric(),
    ]
    first = dict(zip(names, range(len(names)), strict=True))
    first |= {"survey_first": first["survey"], "survey_last": first.pop("survey")}
    later = first | {"begin": 8, "references": 9, "step": 10, "step_kept": 11, "end": 12}
    return {
        "format": "graph/1",
        "tensors": [
            {"shape": shapes[0], "dtype": "float32", "source": "shared:0", "trained": True},
            {"shape": shapes[1], "dtype": "float32", "source": "shared:1", "trained": True},
            {"shape": [FEATURES], "dtype": "float32", "source": "values", "trained": False, "values": scale},
            {"shape": [], "dtype": "int64", "source": "zeros", "trained": False},
        ],
        "roles": {"variate": [[CLASSES]]},
        "hyperparameters": ["learning_rate", "mu"],
        "draws": 0,
        "graphs": [*graphs, _begin(later=True), _references(), _later_step(), _later_step(kept=True), _end(later=True)],
        "rounds": [_round([], 0, first), _round([["mu", ">", 0.0]], 1, later)],
    }


def _round(where: list[list[object]], previous: int, graphs: dict[str, int]) -> Json:
    return {
        "memory_format": "channels-last",
        "scaled": False,
        "previous": previous,
        "roles": ["variate"] * previous,
        "where": where,
        "reference_count": previous,
        "graphs": graphs,
    }


def _begin(*, later: bool) -> Json:
    inputs = ["tensor:0", "tensor:1", "tensor:3", "model:0", "model:1"]
    extra = ["previous:0:0", "previous:0:1", "received:variate:0"] if later else []
    made = len(inputs) + len(extra)
    nodes = [
        node("grad_mode", False, results=0),
        node("aten::copy_", v(0), v(3)),
        node("aten::copy_", v(1), v(4)),
        node("aten::zero_", v(2)),
        node("aten::zeros_like", v(0), memory_format={"memory_format": "preserve"}),
        node("aten::zeros_like", v(1)),
        node("aten::zeros", [FEATURES], dtype={"dtype": "float32"}, device={"device": "plan"}),
    ]
    kept = {"momenta.0": made + 3, "momenta.1": made + 4, "seen": made + 5}
    if later:
        nodes += [node("aten::clone", v(5)), node("aten::clone", v(6)), node("aten::clone", v(7))]
        kept |= {"previous.0": made + 6, "previous.1": made + 7, "variate": made + 8}
    return graph([*inputs, *extra], *nodes, kept=kept)


STEP_INPUTS = (
    *("tensor:0", "tensor:1", "tensor:2", "kept:momenta.0", "kept:momenta.1"),
    *("inputs", "targets", "hyperparameter:learning_rate"),
)


def _descent(gradients: Sequence[int]) -> list[Json]:
    return [
        node("grad_mode", False, results=0),
        node(
            "moonfed::sgd_",
            *([v(0), v(1)], [v(each) for each in gradients], [v(3), v(4)]),
            results=0,
            learning_rate=v(7),
            momentum=0.9,
            weight_decay=0.0,
            rate=None,
            skip=None,
        ),
    ]


def _step() -> Json:
    return graph(
        STEP_INPUTS,
        node("aten::mul.Tensor", v(5), v(2)),
        node("aten::linear", v(8), v(0), v(1)),
        node("aten::cross_entropy_loss", v(9), v(6)),
        node("grad", v(10), [v(0), v(1)], results=2),
        *_descent([11, 12]),
        outputs={"loss": [10]},
        lowered=2,
    )


def _later_step(*, kept: bool = False) -> Json:
    """Return a step of later rounds: from references that are given, or that it computes."""
    more = ["references"] if kept else ["kept:previous.0", "kept:previous.1"]
    inputs = [*STEP_INPUTS, "hyperparameter:mu", "kept:variate", *more]
    scaled = len(inputs)
    nodes = [node("aten::mul.Tensor", v(5), v(2)), node("aten::linear", v(scaled), v(0), v(1))]
    references, following = (10, scaled + 2) if kept else (scaled + 2, scaled + 3)
    if not kept:
        nodes.append(node("aten::linear", v(scaled), v(10), v(11)))
    nodes += [
        node("aten::cross_entropy_loss", v(scaled + 1), v(6)),
        node("aten::mse_loss", v(scaled + 1), v(references)),
        node("aten::mul.Tensor", v(following + 1), v(8)),
        node("aten::add.Tensor", v(following), v(following + 2)),
        node("grad", v(following + 3), [v(0), v(1)], results=2),
        node("aten::add.Tensor", v(following + 5), v(9), alpha=2),
    ]
    nodes += _descent([following + 4, following + 6])
    return graph(inputs, *nodes, outputs={"loss": [following + 3]}, lowered=2)


def _references() -> Json:
    inputs = ("tensor:2", "kept:previous.0", "kept:previous.1", "inputs")
    nodes = (node("aten::mul.Tensor", v(3), v(0)), node("aten::linear", v(4), v(1), v(2)))
    return graph(inputs, *nodes, outputs={"references": [5]}, lowered=2)


def _survey() -> Json:
    nodes = (node("aten::sum.dim_IntList", v(1), 0), node("aten::add.Tensor", v(0), v(2)))
    return graph(["kept:seen", "inputs"], *nodes, kept={"seen": 3})


def _end(*, later: bool) -> Json:
    """Return the model, and in later rounds the sum of the inputs over the steps."""
    nodes = [node("aten::detach", v(0)), node("aten::clone", v(1))]
    if not later:
        return graph(["tensor:0", "tensor:1"], *nodes, outputs={"model": [2, 3]})
    nodes.append(node("aten::div.Scalar", v(2), v(3)))
    outputs = {"model": [4, 5], "class_means": [6]}
    return graph(["tensor:0", "tensor:1", "kept:seen", "steps"], *nodes, outputs=outputs)


def _metrics() -> Json:
    """Return the sum of the inputs, twice the learning rate, and a metric that is never measured."""
    return graph(
        ["kept:seen", "hyperparameter:learning_rate"],
        node("aten::sum", v(0)),
        node("scalar::mul", v(1), 2),
        node("scalar::sub", {"float": "inf"}, {"float": "inf"}),
        outputs={"seen": [2], "rate": [3], "unmeasured": [4]},
    )


def _evaluate() -> Json:
    return graph(
        ["tensor:0", "tensor:1", "tensor:2", "inputs", "targets"],
        node("grad_mode", False, results=0),
        node("aten::mul.Tensor", v(3), v(2)),
        node("aten::linear", v(5), v(0), v(1)),
        node("aten::cross_entropy_loss", v(6), v(4), None, 2),
        node("aten::sym_size.int", v(3), 0),
        node("aten::full", [1], v(8), dtype={"dtype": "float32"}, layout={"layout": "strided"}),
        node("aten::unsqueeze", v(7), 0),
        node("aten::cat", [v(10), v(9)]),
        outputs={"sums": [11]},
    )


def _predict() -> Json:
    return graph(
        ["tensor:0", "tensor:1", "tensor:2", "inputs"],
        node("aten::mul.Tensor", v(3), v(2)),
        node("aten::linear", v(4), v(0), v(1)),
        node("aten::gelu", v(5), approximate={"string": "tanh"}),
        node("aten::split.Tensor", v(6), 2, 1, results=2),
        node("aten::cat", [v(7), v(8)], 1),
        node("aten::softmax.int", v(9), -1),
        outputs={"outputs": [10]},
    )


def _metric() -> Json:
    nodes = (node("aten::select.int", v(0), 0, 0), node("aten::item", v(2)), node("scalar::truediv", v(3), v(1)))
    return graph(["sums", "samples"], *nodes, outputs={"metric": [4]})


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operators that run within it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[str] = []

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        """Note an operator, and execute it."""
        self.operators.append(str(func))
        return func(*args, **(kwargs or {}))


def predicting(*nodes: Json, inputs: list[str] | None = None, result: int | None = None) -> Change:
    """Return a change of the plan's prediction; value 3 is its inputs, and 4 the first node's result."""

    def change(plan: Json) -> None:
        given = PREDICTION if inputs is None else inputs
        made = len(given) + sum(each["results"] for each in nodes) - 1
        plan["graphs"][PREDICT] = graph(given, *nodes, outputs={"outputs": [made if result is None else result]})

    return change


def setting(*path: str | int, to: object) -> Change:
    """Return a change of one field."""

    def change(plan: Json) -> None:
        at: Any = plan
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = to

    return change


def removing(*path: str | int) -> Change:
    def change(plan: Json) -> None:
        at: Any = plan
        for name in path[:-1]:
            at = at[name]
        del at[path[-1]]

    return change


def together(*changes: Change) -> Change:
    def change(plan: Json) -> None:
        for each in changes:
            each(plan)

    return change


def relu(*args: object, **kwargs: Any) -> Change:
    return predicting(node("aten::relu", *args, **kwargs))


def require_refused(directory: Path, change: Change, field: str) -> None:
    """Require that loading the changed plan raises UnsafePlan about a field before any operator runs."""
    plan = linear()
    change(plan)
    with Recorder() as recorder, pytest.raises(UnsafePlan) as caught:
        load_plan(written(directory, plan), "cpu")
    assert str(caught.value.field).startswith(field), (caught.value.field, str(caught.value))
    assert recorder.operators == []
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
