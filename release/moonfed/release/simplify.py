"""Constant folding of a bound graph, including BatchNorm into the preceding convolution. Needs no torch.

A template is exported unoptimised, so that every tensor can be bound; a finished model no longer needs that. ONNX
Runtime cannot fold all of it: a convolution without bias is exported with a computed one.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnxscript.optimizer
from onnx.helper import make_tensor_value_info

_MAX_FOLDED = 1 << 24  # elements of one folded constant: a layer's weights


def simplify(graph: bytes, kept: Collection[str] = ()) -> bytes:
    """Return an equivalent graph with fewer operators and the same metadata.

    `kept`: names of initialisers that stay what they are, because devices replace them.
    """
    proto = onnx.ModelProto.FromString(graph)
    own = [tensor for tensor in proto.graph.initializer if tensor.name in kept]
    for tensor in own:  # an input is not folded
        proto.graph.initializer.remove(tensor)
        proto.graph.input.append(make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    proto = onnxscript.optimizer.optimize(proto, input_size_limit=_MAX_FOLDED, output_size_limit=_MAX_FOLDED)
    for tensor in own:
        proto.graph.input.remove(next(one for one in proto.graph.input if one.name == tensor.name))
        proto.graph.initializer.append(tensor)
    _name_nodes(proto)
    del proto.graph.value_info[:]  # shapes can be inferred
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _name_nodes(proto: onnx.ModelProto) -> None:
    """Give every operator a unique name, by which converters can exclude it."""
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{number}"
