"""Makes int8 and optimised copies of a checked graph, with ONNX Runtime's own tools. Needs no torch."""

from __future__ import annotations

import json
import logging
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from moonfed.export.binding import INPUT
from moonfed.release.keep_float32 import float32_nodes
from moonfed.samples import Inputs

CALIBRATION_BATCH = 32
_ERRORS_ONLY = 3


def to_int8(graph: bytes, calibration: Inputs) -> bytes:
    """A copy in QDQ form: activations uint8, weights int8 per channel, with the ranges that calibration data show.

    `calibration`: raw samples [N, …].
    """
    proto = onnx.ModelProto.FromString(graph)
    add_pre_process_metadata(proto)  # it is folded already, which the quantiser else advises to do
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / "int8.onnx"
        logging.disable(logging.WARNING)  # it would say of each operator what it does not quantise
        try:
            quantize_static(
                proto,
                path,
                _Reader(calibration),
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


def optimise(graph: bytes) -> bytes:
    """The graph with ONNX Runtime's own operators, fused as it does for processors like this one; it loads sooner.

    Up to its extended level: the one above lays weights out for this processor's vector width, which would give wrong
    answers on another, and names what it adds differently from time to time.
    """
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path, options = Path(directory) / "optimised.onnx", onnxruntime.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        return onnx.load(path).SerializeToString(deterministic=True)


def describe_hardware() -> str:
    """What an optimised copy is made for: architecture, vector instructions and ONNX Runtime's release, as JSON."""
    config: Any = np.show_config(mode="dicts")
    found = config["SIMD Extensions"]
    instructions = sorted({*found["baseline"], *found["found"]})
    return json.dumps(
        {"machine": platform.machine(), "instructions": instructions, "onnxruntime": onnxruntime.__version__},
        sort_keys=True,
    )


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # untyped
    """Calibration data in batches, as ONNX Runtime asks for them."""

    def __init__(self, inputs: Inputs) -> None:
        self._batches: Iterator[Inputs] = (
            inputs[start : start + CALIBRATION_BATCH] for start in range(0, len(inputs), CALIBRATION_BATCH)
        )

    def get_next(self) -> dict[str, Inputs] | None:
        batch = next(self._batches, None)
        return None if batch is None else {INPUT: batch}
