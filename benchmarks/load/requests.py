"""Clients of an inference server, each with a thread and a channel of its own: `ADDRESS MODEL CLIENTS BATCH SECONDS`.

Prints one JSON object: requests a second, and the median and the 99th percentile of the latencies in milliseconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as triton

WARM_UP_SECONDS = 0.5


class Client(threading.Thread):
    """Asks the same again and again until it is told to stop, and notes how long each answer took."""

    def __init__(self, address: str, model: str, batch: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._client, self._model, self._stop_asking = triton.InferenceServerClient(address), model, stop
        (tensor,) = self._client.get_model_metadata(model).inputs
        shape = [batch, *(int(length) for length in tensor.shape[1:])]
        self._input = triton.InferInput(tensor.name, shape, tensor.datatype)
        self._input.set_data_from_numpy(np.random.default_rng(7).integers(0, 256, shape, np.uint8))
        self.answers: list[tuple[float, float]] = []  # when it was asked, and how long the answer took

    def run(self) -> None:
        while not self._stop_asking.is_set():
            began = time.perf_counter()
            self._client.infer(self._model, [self._input])
            self.answers.append((began, time.perf_counter() - began))


def measure(address: str, model: str, clients: int, batch: int, seconds: float) -> dict[str, float]:
    """What so many clients get in that time, the first half second left out."""
    stop = threading.Event()
    asking = [Client(address, model, batch, stop) for _ in range(clients)]
    for client in asking:
        client.start()
    begin = time.perf_counter() + WARM_UP_SECONDS
    time.sleep(WARM_UP_SECONDS + seconds)
    stop.set()
    for client in asking:
        client.join()
    taken = [took for client in asking for at, took in client.answers if begin <= at and at + took <= begin + seconds]
    median, tail = np.quantile(taken, [0.5, 0.99])
    return {"rate": len(taken) / seconds, "median_ms": 1e3 * float(median), "p99_ms": 1e3 * float(tail)}


if __name__ == "__main__":
    address, model, clients, batch, seconds = sys.argv[1:]
    print(json.dumps(measure(address, model, int(clients), int(batch), float(seconds))))
