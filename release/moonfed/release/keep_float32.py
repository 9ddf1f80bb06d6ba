"""Which operators of a graph keep float32 in every variant."""

from __future__ import annotations

import onnx

from moonfed.export.binding import OUTPUT

_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def float32_nodes(proto: onnx.ModelProto) -> list[str]:
    """The names of preprocessing's operators, and of the one that makes the probabilities.

    Raw values may be too large for float16 and too unevenly spread for int8, and all of preprocessing is a few numbers
    per pixel; a softmax in eighths of a bit would tie classes that differ. Preprocessing is what comes before the
    first operators with weights.
    """
    learned: set[str] = set()
    kept = []
    for node in proto.graph.node:  # in topological order, as ONNX asks
        if node.op_type in _WITH_WEIGHTS or not learned.isdisjoint(node.input):
            learned.update(node.output)
        else:
            kept.append(node.name)
    return kept + [node.name for node in proto.graph.node if OUTPUT in node.output]
