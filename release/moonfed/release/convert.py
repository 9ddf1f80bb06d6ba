"""Conversion of a checked graph to int8 and to optimised copies, with ONNX Runtime's tools. Needs no torch."""

from __future__ import annotations

import json
import logging
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from string import digits
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from moonfed.data.data_set import Inputs
from moonfed.export.binding import INPUT
from moonfed.release.keep_float32 import float32_nodes

CALIBRATION_BATCH = 32
_ERRORS_ONLY = 3
_SUFFIX = "."  # ends no name that torch gives


def to_int8(graph: bytes, calibration: Inputs) -> bytes:
    """Quantise a graph in QDQ form: activations uint8, weights int8 per channel, ranges from calibration data.

    `calibration`: raw samples [N, …].
    """
    proto = onnx.ModelProto.FromString(graph)
    _rename_ambiguous(proto)
    add_pre_process_metadata(proto)  # marks the graph as already folded, else the quantiser warns
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / "int8.onnx"
        logging.disable(logging.WARNING)  # it would list every operator that it does not quantise
        try:
            quantize_static(
                proto,
                path,
                _BatchReader(calibration),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                nodes_to_exclude=float32_nodes(proto),
            )
        finally:
            logging.disable(logging.NOTSET)
        quantised = onnx.load(path)
    del quantised.graph.value_info[:]
    onnx.checker.check_model(quantised)
    return quantised.SerializeToString(deterministic=True)


def _rename_ambiguous(proto: onnx.ModelProto) -> None:
    """Rename initialisers whose name with a number behind it is that of another tensor.

    The quantiser gives such names to copies of initialisers without looking whether they are taken.
    """
    initialisers = {initialiser.name for initialiser in proto.graph.initializer}
    names = initialisers.union(*(node.output for node in proto.graph.node))
    ambiguous = {
        name[:end] for name in names for end in range(len(name.rstrip(digits)), len(name)) if name[:end] in initialisers
    }
    for initialiser in proto.graph.initializer:
        if initialiser.name in ambiguous:
            initialiser.name += _SUFFIX
    for node in proto.graph.node:
        for place, name in enumerate(node.input):
            if name in ambiguous:
                node.input[place] = name + _SUFFIX


def optimise(graph: bytes) -> bytes:
    """Optimise a graph with ONNX Runtime's fused operators for processors like this one, so that it loads faster.

    It stops at the extended level: the level above arranges weights for this processor's vector width, which gives
    wrong results on another, and the names it adds are not reproducible.
    """
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path, options = Path(directory) / "optimised.onnx", onnxruntime.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        return onnx.load(path).SerializeToString(deterministic=True)


def describe_hardware() -> str:
    """Describe the target of an optimised copy as JSON: architecture, vector instructions, ONNX Runtime's release."""
    config: Any = np.show_config(mode="dicts")
    simd = config["SIMD Extensions"]
    instructions = sorted({*simd["baseline"], *simd["found"]})
    return json.dumps(
        {"machine": platform.machine(), "instructions": instructions, "onnxruntime": onnxruntime.__version__},
        sort_keys=True,
    )


class _BatchReader(CalibrationDataReader):  # type: ignore[misc]  # untyped
    """Calibration data in batches, with the interface that ONNX Runtime expects."""

    def __init__(self, inputs: Inputs) -> None:
        self._batches: Iterator[Inputs] = (
            inputs[start : start + CALIBRATION_BATCH] for start in range(0, len(inputs), CALIBRATION_BATCH)
        )

    def get_next(self) -> dict[str, Inputs] | None:
        batch = next(self._batches, None)
        return None if batch is None else {INPUT: batch}
