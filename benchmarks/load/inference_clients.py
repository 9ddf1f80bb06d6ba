"""Clients of an inference server, each with its own thread and channel: `ADDRESS MODEL CLIENTS BATCH SECONDS`.

Prints one JSON object: requests per second, and median and 99th percentile of the latencies in milliseconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import numpy as np
import tritonclient.grpc as triton

from benchmarks.load.closed_loop import LoadResult, measure


def measure_requests(address: str, model: str, clients: int, batch: int, seconds: float) -> LoadResult:
    """Measure clients that repeat one request."""
    return measure([_request(address, model, batch) for _ in range(clients)], seconds)


def _request(address: str, model: str, batch: int) -> Callable[[], object]:
    client = triton.InferenceServerClient(address)
    (tensor,) = client.get_model_metadata(model).inputs
    shape = [batch, *(int(length) for length in tensor.shape[1:])]
    pixels = triton.InferInput(tensor.name, shape, tensor.datatype)
    pixels.set_data_from_numpy(np.random.default_rng(7).integers(0, 256, shape, np.uint8))
    return partial(client.infer, model, [pixels])


def main() -> None:
    address, model, clients, batch, seconds = sys.argv[1:]
    print(json.dumps(asdict(measure_requests(address, model, int(clients), int(batch), float(seconds)))))


if __name__ == "__main__":
    main()
