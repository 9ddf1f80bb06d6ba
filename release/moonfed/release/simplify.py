"""Folds what is constant in a bound graph, and BatchNorm into the convolution before it. Needs no torch.

A template is exported unoptimised, so that every tensor keeps its place to be bound to; a finished model has no more
use for that. ONNX Runtime cannot do all of it by itself: a convolution without bias is exported with a computed one.
"""

from __future__ import annotations

import onnx
import onnxscript.optimizer

_FOLDED_AT_MOST = 1 << 24  # numbers in one folded constant: a layer's weights


def simplify(graph: bytes) -> bytes:
    """The same function with fewer operators; its metadata stay."""
    proto = onnxscript.optimizer.optimize(
        onnx.ModelProto.FromString(graph), input_size_limit=_FOLDED_AT_MOST, output_size_limit=_FOLDED_AT_MOST
    )
    _name_nodes(proto)
    del proto.graph.value_info[:]  # whoever needs shapes infers them
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _name_nodes(proto: onnx.ModelProto) -> None:
    """Gives every operator a name of its own, by which converters can be told to leave it alone."""
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{number}"
