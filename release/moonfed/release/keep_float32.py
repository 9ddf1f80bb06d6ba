"""The operators of a graph that stay in float32 in every variant."""

from __future__ import annotations

import onnx

from moonfed.bundle.target import OUTPUTS

_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def float32_nodes(proto: onnx.ModelProto) -> list[str]:
    """Return the names of preprocessing's operators and of the one that computes the result.

    Raw values may be too large for float16 and too unevenly distributed for int8, and preprocessing is cheap; a softmax
    in int8 would tie classes that differ. Preprocessing is everything before the first operators with weights.
    """
    learned: set[str] = set()
    kept = []
    for node in proto.graph.node:  # in topological order, as ONNX requires
        if node.op_type in _WITH_WEIGHTS or not learned.isdisjoint(node.input):
            learned.update(node.output)
        else:
            kept.append(node.name)
    return kept + [node.name for node in proto.graph.node if any(output in OUTPUTS for output in node.output)]
