"""Latency of honest requests to an inference server under attack, and the server's memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil

from benchmarks.load import inference_servers
from benchmarks.load.http_attacks import ATTACKS
from benchmarks.load.inference_servers import SHAPE
from benchmarks.report import Figure, Tables, progress

MAX_RATIO = 2.0
MODEL = "small"
PATH = f"/v2/models/{MODEL}/infer"
PAUSE_SECONDS = 0.005  # between two honest requests


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackScale:
    """Size of the benchmark."""

    model: str = "cnn"
    requests: int = 300
    begin_seconds: float = 2.0  # from the start of an attack to the first request


def measure_server_attacks(scale: AttackScale = AttackScale()) -> Tables:
    with tempfile.TemporaryDirectory(prefix="moonfed-bench-") as place:
        repository = Path(place) / "models"
        inference_servers.publish(repository, MODEL, inference_servers.write_graph(scale.model, Path(place)))
        for attack in ATTACKS:
            with inference_servers.serving_http(repository) as (port, process):
                yield _attack(scale, attack, port, psutil.Process(process))


def _attack(scale: AttackScale, attack: str, port: int, server: psutil.Process) -> Sequence[Figure]:
    progress(f"{attack}: {scale.requests} honest requests before and during it")
    _latencies(port, scale.requests // 10)
    before, memory = _latencies(port, scale.requests), server.memory_info().rss
    with _attacking(attack, port):
        time.sleep(scale.begin_seconds)
        during = _latencies(port, scale.requests)
        grown = server.memory_info().rss - memory
    ratio = statistics.median(during) / statistics.median(before)
    tail = statistics.quantiles(during, n=20)[-1] / statistics.quantiles(before, n=20)[-1]
    return [
        Figure(name=f"{attack}: latency during / before, median", value=ratio, unit="times", at_most=MAX_RATIO),
        Figure(name=f"{attack}: latency during / before, 95th percentile", value=tail, unit="times"),
        Figure(name=f"{attack}: growth of the server's memory", value=grown / 1e6, unit="MB", at_most=1000.0),
    ]


def _latencies(port: int, requests: int) -> list[float]:
    """Return the seconds that each honest request took; RuntimeError if one is not answered."""
    pixels = [0] * (SHAPE[0] * SHAPE[1] * SHAPE[2])
    tensor = {"name": "inputs", "datatype": "UINT8", "shape": [1, *SHAPE], "data": pixels}
    body, taken = json.dumps({"inputs": [tensor]}), list[float]()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for _ in range(requests):
            began = time.perf_counter()
            connection.request("POST", PATH, body)
            response = connection.getresponse()
            content = response.read()
            taken.append(time.perf_counter() - began)
            if response.status != 200:
                raise RuntimeError(f"an honest request got {response.status}: {content[:200]!r}")
            time.sleep(PAUSE_SECONDS)
    return taken


@contextmanager
def _attacking(attack: str, port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.load.http_attacks", attack, str(port), PATH])
    try:
        yield
    finally:
        process.kill()
        process.wait()
