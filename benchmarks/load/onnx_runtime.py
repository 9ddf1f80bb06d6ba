"""ONNX Runtime without a server: `MODEL.onnx CALLERS THREADS BATCH SECONDS`, with THREADS threads per run.

Prints the same JSON object as `inference_clients`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial

import numpy as np
import onnxruntime

from benchmarks.load.closed_loop import LoadResult, measure


def measure_runs(model: str, callers: int, threads: int, batch: int, seconds: float) -> LoadResult:
    """Measure one session that several callers share."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (tensor,) = session.get_inputs()
    pixels = np.random.default_rng(7).integers(0, 256, (batch, *tensor.shape[1:]), np.uint8)
    return measure([partial(session.run, None, {tensor.name: pixels})] * callers, seconds)


def main() -> None:
    model, callers, threads, batch, seconds = sys.argv[1:]
    print(json.dumps(asdict(measure_runs(model, int(callers), int(threads), int(batch), float(seconds)))))


if __name__ == "__main__":
    main()
