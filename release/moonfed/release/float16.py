"""Conversion of a checked graph to float16 with ONNX Runtime's converter. Needs no torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes.common import TopologicalSortPass
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxscript.rewriter import pattern, rewrite

from moonfed.release.keep_float32 import float32_nodes

_RECURRENT = ("GRU", "LSTM")
_SMALL_VALUES = "the float32 number .* will be truncated"  # to float16's nearest value


def to_float16(graph: bytes) -> bytes:
    """Convert a graph to compute in float16 between preprocessing and softmax; inputs stay raw, outputs float32.

    Recurrent layers have their weights in float16 and compute in float32, as ONNX Runtime 1.31 would on CPUs anyway,
    where it crashes on some that are to compute in float16.
    """
    proto = onnx.ModelProto.FromString(graph)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _SMALL_VALUES, UserWarning)
        converted = convert_float_to_float16(proto, keep_io_types=True, node_block_list=float32_nodes(proto))
    _drop_duplicate_casts(converted)
    model: Any = ir.from_proto(converted)
    TopologicalSortPass()(model)  # the converter appends its casts at the end
    model = rewrite(model, [_drop_round_trip_casts()])
    onnxscript.optimizer.optimize(model)
    proto = ir.to_proto(model)
    _store_recurrent_weights(proto)
    del proto.graph.value_info[:]
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _store_recurrent_weights(proto: onnx.ModelProto) -> None:
    """Store the weights of recurrent layers in float16, each with a cast, which ONNX Runtime folds when it loads."""
    names = {name for node in proto.graph.node if node.op_type in _RECURRENT for name in node.input[1:4]}
    casts = []
    for tensor in proto.graph.initializer:
        if tensor.name in names and tensor.data_type == onnx.TensorProto.FLOAT:
            name, values = tensor.name, onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}_float16"))
            casts.append(onnx.helper.make_node("Cast", [tensor.name], [name], tensor.name, to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _drop_duplicate_casts(proto: onnx.ModelProto) -> None:
    """Drop duplicate casts, which the converter emits for each operator that needs one and which are invalid."""
    first = {output: node for node in reversed(proto.graph.node) for output in node.output}
    nodes = [node for node in proto.graph.node if all(first[output] is node for output in node.output)]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _drop_round_trip_casts() -> pattern.RewriteRule:
    """Build the rule that removes casts to float16 and back, which the converter puts between float32 operators."""
    return pattern.RewriteRule(
        lambda op, x: op.Cast(op.Cast(x, to=ir.DataType.FLOAT16), to=ir.DataType.FLOAT),
        lambda op, x: op.Identity(x),
        lambda context, x, **others: x.dtype == ir.DataType.FLOAT,
    )
