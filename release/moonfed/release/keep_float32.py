"""The operators of a graph that stay in float32 in every variant."""

from __future__ import annotations

import onnx

_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def float32_nodes(proto: onnx.ModelProto) -> list[str]:
    """Return the names of preprocessing's operators, and of those that compute the result from what was learned.

    Raw values may be too large for float16 and too unevenly distributed for int8, and preprocessing is cheap; a softmax
    in int8 would tie classes that differ, and values in their units would have 256 steps. Preprocessing is everything
    before the first operators with weights, the result everything behind the last.
    """
    nodes = proto.graph.node  # in topological order, as ONNX requires
    learned, needed = set[str](), set[str]()
    for node in nodes:
        if node.op_type in _WITH_WEIGHTS or not learned.isdisjoint(node.input):
            learned.update(node.output)
    for node in reversed(nodes):
        if node.op_type in _WITH_WEIGHTS or not needed.isdisjoint(node.output):
            needed.update(node.input)
    return [
        node.name
        for node in nodes
        if node.op_type not in _WITH_WEIGHTS and (learned.isdisjoint(node.output) or needed.isdisjoint(node.output))
    ]
