"""The nodes of a plan's functions: those of every inner block are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from moonfed.bundle.manifest import PLAN_FILE
from moonfed.plan.inspection.functions import graphs, nodes
from moonfed.plan.inspection.operators import compile_archive
from tests.export.conftest import PICTURES
from tests.support.compiled import device_bundle


class Nested(torch.nn.Module):
    """A module with every kind of block that TorchScript has."""

    def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        squares = [value * value for value in range(depth)]
        for square in squares:
            while depth > 0:
                depth -= 1
                with torch.no_grad():
                    if depth == 3:
                        x = x.sin() if square > 1 else x.cos()
        return x if len(squares) > 2 else x.tan()


def exhaustive(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from exhaustive(inner)


def test_no_operator_hides_in_an_inner_block() -> None:
    compiled: Any = torch.jit.script(Nested())
    operators = [node.kind() for node in nodes(compiled.graph)]
    assert {"aten::sin", "aten::cos", "aten::tan"} <= set(operators)
    assert operators == [node.kind() for node in exhaustive(compiled.graph)]


@pytest.mark.parametrize("method", ["moon", "fedssc", "scaffold"])
def test_a_plans_nodes_are_those_of_all_blocks(method: str) -> None:
    unit, _ = compile_archive(device_bundle(replace(PICTURES, method=method, settings={})).contents[PLAN_FILE])
    for graph in graphs(unit).values():
        assert [node.kind() for node in nodes(graph)] == [node.kind() for node in exhaustive(graph)]
