"""Building a plan's graphs beside its TorchScript, and comparing both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from moonfed.export.graph.container import container
from moonfed.export.graph.rounds import Arguments, starts_of, trace_rounds
from moonfed.export.graph.tracer import Untraceable
from moonfed.export.training_plan import TrainingPlan
from moonfed.plan.graph.container import read_container
from moonfed.plan.inspection.older_torch import Call, oldest_release

BATCH, OTHER_BATCH = 57, 3  # samples; no size in a network should equal the first


def graph_plan(plan: TrainingPlan, arguments: Arguments) -> bytes:
    """Trace a plan to its container; Untraceable if a graph cannot express it."""
    starts = starts_of(plan, arguments)
    rounds = trace_rounds(plan, arguments, starts, BATCH)
    last = [each for each in rounds if each.start == starts[-1]]
    again = trace_rounds(plan, arguments, starts[-1:], OTHER_BATCH)
    if container(plan, arguments, last) != container(plan, arguments, again):
        raise Untraceable("its steps depend on the size of the batch")
    return container(plan, arguments, rounds)


def minimum_torch(content: bytes) -> str:
    """Return the oldest release of torch in which a device runs a container, such as `2.4`."""
    nodes = [node for graph in read_container(content).graphs for node in graph.nodes]
    return oldest_release(Call(node.operator, len(node.args), tuple(node.kwargs)) for node in nodes)


def require_equal(
    run: Callable[[], Mapping[str, Sequence[torch.Tensor]]], expected: Mapping[str, Sequence[torch.Tensor]]
) -> None:
    """Raise Untraceable unless the graphs' results, by role, equal TorchScript's in every bit."""
    try:
        results = run()
    except Exception as error:  # torch has many kinds
        raise Untraceable(f"its graphs fail: {error}") from error
    for role, tensors in expected.items():
        if not all(torch.equal(left, right) for left, right in zip(tensors, results[role], strict=True)):
            raise Untraceable(f"its graphs' {role!r} differs from TorchScript's after the steps of the checks")
