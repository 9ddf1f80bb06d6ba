"""Constant folding of a bound graph, including BatchNorm into the preceding convolution. Needs no torch.

A template is exported unoptimised, so that every tensor can be bound; a finished model no longer needs that. ONNX
Runtime cannot fold all of it: a convolution without bias is exported with a computed one.
"""

from __future__ import annotations

import onnx
import onnxscript.optimizer

_MAX_FOLDED = 1 << 24  # elements of one folded constant: a layer's weights


def simplify(graph: bytes) -> bytes:
    """Return an equivalent graph with fewer operators and the same metadata."""
    proto = onnxscript.optimizer.optimize(
        onnx.ModelProto.FromString(graph), input_size_limit=_MAX_FOLDED, output_size_limit=_MAX_FOLDED
    )
    _name_nodes(proto)
    del proto.graph.value_info[:]  # shapes can be inferred
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _name_nodes(proto: onnx.ModelProto) -> None:
    """Give every operator a unique name, by which converters can exclude it."""
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{number}"
