"""The functions that graphs become."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from moonfed.plan.graph.container import read_container
from moonfed.plan.graph.inspection import inspected
from moonfed.plan.graph.program import Program
from tests.support import graph_containers
from tests.support.graph_containers import PREDICT, Json, graph, node, v


def program(made: Json, place: int = PREDICT) -> Program:
    plan = graph_containers.linear()
    plan["graphs"][place] = made
    return Program(inspected(read_container(json.dumps(plan).encode()))[place], torch.device("cpu"))


def run(made: Json, *given: object) -> Sequence[object]:
    outputs, _ = program(made).run(given, nullcontext)
    return outputs["outputs"]


def test_values_in_place_are_those_of_eager_code() -> None:
    nodes = (
        node("aten::add_.Tensor", v(0), 1.0),
        node("aten::select.int", v(0), 0, 1),
        node("aten::mul_.Tensor", v(2), 10.0),
        node("aten::sum", v(0)),
    )
    inputs = torch.ones(2, 2)
    (result,) = run(graph(["inputs"], *nodes, outputs={"outputs": [4]}), inputs)
    assert inputs.tolist() == [[2.0, 2.0], [20.0, 20.0]]
    assert float(result) == 44.0  # type: ignore[arg-type]


def test_an_operator_may_have_several_results() -> None:
    nodes = (node("aten::max.dim", v(0), 1, results=2), node("aten::add.Tensor", v(1), v(2)))
    (result,) = run(graph(["inputs"], *nodes, outputs={"outputs": [3]}), torch.tensor([[1.0, 5.0, 3.0]]))
    assert result.tolist() == [6.0]  # type: ignore[attr-defined]


def test_a_value_is_freed_after_its_last_use() -> None:
    """A chain of a hundred tensors takes the memory of two."""
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    class Counting(torch.Tensor):
        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal most
            result = torch.Tensor._make_subclass(cls, torch.ones(3))
            alive.append(weakref.ref(result))
            most = max(most, sum(each() is not None for each in alive))
            return result

    nodes = [node("aten::relu", v(at)) for at in range(100)]
    nodes += [node("aten::split.Tensor", v(100), 1, results=1), node("aten::relu", v(100))]
    given = torch.Tensor._make_subclass(Counting, torch.ones(3))
    gc.disable()
    try:
        run(graph(["inputs"], *nodes[:100], outputs={"outputs": [100]}), given)
    finally:
        gc.enable()
    assert len(alive) == 100
    assert most <= 3


def test_the_number_of_tensors_in_a_list_is_checked() -> None:
    for results, works in ((2, False), (3, True), (4, False), (0, False)):
        split = node("aten::split.Tensor", v(0), 1, results=results)
        made = graph(["inputs"], split, outputs={"outputs": [0]})
        if works:
            run(made, torch.ones(3))
        else:
            with pytest.raises(ValueError, match="unpack"):
                run(made, torch.ones(3))


def test_the_gradient_mode_is_that_of_the_graph_and_then_the_callers() -> None:
    nodes = (
        node("aten::mul.Tensor", v(0), 2.0),
        node("grad_mode", False, results=0),
        node("aten::mul.Tensor", v(0), 3.0),
        node("grad_mode", True, results=0),
        node("aten::sum", v(1)),
        node("grad", v(3), [v(0)]),
        node("aten::add.Tensor", v(2), v(4)),
    )
    weights = torch.ones(3, 4, requires_grad=True)
    with torch.no_grad():
        (result,) = run(graph(["tensor:0"], *nodes, outputs={"outputs": [5]}), weights)
        assert not torch.is_grad_enabled()
    assert torch.equal(result, torch.full((3, 4), 5.0))  # type: ignore[arg-type]
    made = graph(["inputs"], node("grad_mode", False, results=0), node("aten::relu", v(0)), outputs={"outputs": [1]})
    with pytest.raises(RuntimeError):
        run(made, "no tensor")
    assert torch.is_grad_enabled(), "also after a failure"


def test_results_and_kept_values_need_no_gradients() -> None:
    made = graph(["tensor:0"], node("aten::relu", v(0)), outputs={"outputs": [1]}, kept={"a": 1, "b": 0})
    outputs, kept = program(made).run([torch.ones(3, 4, requires_grad=True)], nullcontext)
    assert not any(each.requires_grad for each in (*outputs["outputs"], *kept.values()))
    assert list(kept) == ["a", "b"]


def test_the_first_nodes_run_in_lower_precision() -> None:
    nodes = (node("aten::linear", v(0), v(1)), node("aten::linear", v(0), v(1)))
    made = graph(["inputs", "tensor:0"], *nodes, outputs={"outputs": [3]}, kept={"lowered": 2}, lowered=1)
    outputs, kept = program(made).run(
        [torch.ones(1, 4), torch.ones(3, 4)], lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
    )
    assert (kept["lowered"].dtype, outputs["outputs"][0].dtype) == (torch.bfloat16, torch.float32)
