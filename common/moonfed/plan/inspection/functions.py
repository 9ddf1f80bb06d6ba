"""The functions of a compiled plan, and the nodes of their graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Nodes without a schema that have no inner blocks; nor has one with a schema, which is an operator.
LEAVES = frozenset(
    f"prim::{kind}"
    for kind in ("Constant", "GetAttr", "SetAttr", "CallMethod", "CallFunction", "ListConstruct", "TupleConstruct")
)
NO_SCHEMA = "(no schema)"


class Use(NamedTuple):
    """A node, its function, and the name of its operator with that of the overload: `aten::add.Tensor`."""

    function: str
    node: Any
    operator: str


def graphs(unit: Any) -> dict[str, Any]:  # noqa: ANN401 - torch's bindings are untyped
    """Return the graphs of all functions and methods of a compilation unit, by name.

    Torch compiles a function when its graph is requested, which may define the functions that it calls.
    """
    found: dict[str, Any] = {}
    while new := [function for function in unit.get_functions() if function.qualified_name not in found]:
        found.update((function.qualified_name, function.graph) for function in new)
    return found


def nodes(block: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield all nodes of a graph or block, with those of inner blocks and of graphs that are attributes."""
    for node in block.nodes():
        yield node
        if _may_have_blocks(node):  # asking every node for its blocks would take half the time of an inspection
            for inner in node.blocks():
                yield from nodes(inner)
        for attribute in node.attributeNames():
            kind = node.kindOf(attribute)
            for graph in (node.g(attribute),) if kind == "g" else node.gs(attribute) if kind == "gs" else ():
                yield from nodes(graph)


def uses(found: Mapping[str, Any]) -> list[Use]:
    """Return all nodes of graphs, given by the names of their functions."""
    return [Use(function, node, _operator(node)) for function, graph in found.items() for node in nodes(graph)]


def _may_have_blocks(node: Any) -> bool:  # noqa: ANN401
    return node.schema() == NO_SCHEMA and node.kind() not in LEAVES


def _operator(node: Any) -> str:  # noqa: ANN401
    schema: str = node.schema()
    return str(node.kind()) if schema == NO_SCHEMA else schema.split("(", 1)[0]
