"""The inference server: a real server process, and tritonclient clients in another process on the same cores.

KServe's server is measured if the environment variable KSERVE_PYTHON names a Python with KServe and ONNX Runtime, whose
dependencies conflict with moonfed's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import tritonclient.grpc as triton

from benchmarks.load import inference_servers
from benchmarks.load.closed_loop import LoadResult
from benchmarks.load.inference_servers import KSERVE_PYTHON, SHAPE
from benchmarks.quantisation import train_digits
from benchmarks.report import Figure, Tables, progress
from moonfed.release.variants import FLOAT32, INT8

CORES = os.cpu_count() or 1
MAX_DIFFERENCE = 1e-5  # between two releases of ONNX Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingScale:
    """Size of the benchmark."""

    small: str = "cnn"
    large: str = "resnet18"
    turns: int = 5
    seconds: float = 4.0  # per test and turn
    clients: tuple[int, ...] = (8, 64)
    batch: int = 32
    starts: int = 5
    epochs: int = 4  # and one more, of training on digits before the large model is quantised


LoadTest = Callable[[], LoadResult]


def measure_serving(scale: ServingScale = ServingScale()) -> Tables:
    with tempfile.TemporaryDirectory(prefix="moonfed-bench-") as place:
        directory = Path(place)
        small, large = (inference_servers.write_graph(model, directory) for model in (scale.small, scale.large))
        repository = directory / "models"
        for name, graph in (("small", small), ("large", large)):
            inference_servers.publish(repository, name, graph)
            inference_servers.publish(repository, f"{name}-alone", graph, batching=False)
        yield from _small(scale, repository, small)
        yield _throughput(scale, repository, large)
        yield from _batching(scale, repository)
        yield _quantised(scale, directory)
        yield [_equality(scale, repository, {"small": small, "large": large})]
        yield [_starts(scale, directory, small)]


def _small(scale: ServingScale, repository: Path, graph: Path) -> Tables:
    """Compare batch 1 with the no-op server, the inference-only server and KServe's server."""
    with ExitStack() as stack:
        addresses = {"ours": stack.enter_context(inference_servers.serving(repository))}
        addresses["no-op"] = stack.enter_context(inference_servers.no_op())
        addresses["inference-only"] = stack.enter_context(inference_servers.no_op(graph))
        if KSERVE_PYTHON:
            addresses["kserve"] = stack.enter_context(inference_servers.kserve(graph, "small"))
            _require_answers(addresses["kserve"], graph)
        for clients in scale.clients:
            tests = {name: _client_load(address, "small", clients, 1, scale) for name, address in addresses.items()}
            rates = _rates(_alternate(f"batch 1, {clients} clients", tests, scale.turns))
            what = f"{scale.small}, batch 1, {clients} clients"
            figures = [
                Figure(name=f"{what}: requests per second", value=statistics.median(rates["ours"]), unit="1/s"),
                _ratio(f"{what}: moonfed / no-op server", rates["ours"], rates["no-op"], 0.85),
                _ratio(f"{what}: inference-only / no-op server", rates["inference-only"], rates["no-op"]),
                _ratio(f"{what}: moonfed / inference-only server", rates["ours"], rates["inference-only"]),
            ]
            name = f"{what}: moonfed / KServe's Python server"
            if KSERVE_PYTHON:
                figures.append(_ratio(name, rates["ours"], rates["kserve"], 1.3))
            else:
                figures.append(Figure(name=name, unit="times", at_least=1.3, reason="KSERVE_PYTHON is not set"))
            yield figures


def _throughput(scale: ServingScale, repository: Path, graph: Path) -> list[Figure]:
    """Compare a large batch through the server, with one request queued per running one, with ONNX Runtime alone.

    Each test has the cores to itself in its best configuration: ONNX Runtime with one run on all cores or one run per
    core, the server with its defaults, which are the latter.
    """
    with inference_servers.serving(repository) as address:
        tests = {
            "ours": _client_load(address, "large-alone", 2 * CORES, scale.batch, scale),
            "one run on all cores": _runtime_load(graph, 1, CORES, scale),
            "one run per core": _runtime_load(graph, CORES, 1, scale),
        }
        rates = _rates(_alternate(f"batch {scale.batch}", tests, scale.turns))
    ours = rates.pop("ours")
    best = max(rates, key=lambda name: statistics.median(rates[name]))
    what = f"{scale.large}, batch {scale.batch}"
    return [
        Figure(name=f"{what}: samples per second", value=scale.batch * statistics.median(ours), unit="1/s"),
        *(
            Figure(name=f"{what}: ONNX Runtime, {name}", value=scale.batch * statistics.median(found), unit="1/s")
            for name, found in rates.items()
        ),
        _ratio(f"{what}: moonfed / ONNX Runtime", ours, rates[best], 0.95),
    ]


def _batching(scale: ServingScale, repository: Path) -> Tables:
    """Compare batch 1 from many clients with and without dynamic batching."""
    clients = max(scale.clients)
    with inference_servers.serving(repository) as address:
        for name, model, at_least in (("large", scale.large, 1.1), ("small", scale.small, 1.0)):
            tests = {
                "batched": _client_load(address, name, clients, 1, scale),
                "alone": _client_load(address, f"{name}-alone", clients, 1, scale),
            }
            loads = _alternate(f"{model} with and without dynamic batching", tests, scale.turns)
            rates = _rates(loads)
            tails = {test: [load.p99_ms for load in found] for test, found in loads.items()}
            what = f"{model}, batch 1, {clients} clients: dynamic batching / none"
            tail = statistics.median(a / b for a, b in zip(tails["batched"], tails["alone"], strict=True))
            at_most = 1.0 if name == "large" else None
            yield [
                _ratio(f"{what}, requests per second", rates["batched"], rates["alone"], at_least),
                Figure(name=f"{what}, p99", value=tail, unit="times", at_most=at_most),
            ]


def _quantised(scale: ServingScale, directory: Path) -> list[Figure]:
    """Compare a trained model's int8 variant with float32, each in one run on all cores."""
    digits = train_digits(scale.large, scale.epochs, directory)
    tests = {name: _runtime_load(digits.files[name], 1, CORES, scale) for name in (INT8, FLOAT32)}
    rates = _rates(_alternate(f"{scale.large} in int8 and float32", tests, scale.turns))
    what = f"{scale.large}, batch {scale.batch}: int8 / float32"
    return [_ratio(what, rates[INT8], rates[FLOAT32], 3.0), *digits.figures(scale.large)]


def _equality(scale: ServingScale, repository: Path, graphs: Mapping[str, Path]) -> Figure:
    """Return the largest difference between served answers and ONNX Runtime called directly."""
    with inference_servers.serving(repository) as address:
        differences = [
            _difference(address, name, graph, samples) for name, graph in graphs.items() for samples in (1, scale.batch)
        ]
    name = "served answers' largest difference from ONNX Runtime's"
    return Figure(name=name, value=float(np.max(differences)), unit="", at_most=0.0)  # np.max propagates NaN


def _difference(address: str, model: str, graph: Path, samples: int) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # like both servers
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(3).integers(0, 256, (samples, *SHAPE), np.uint8)
    (expected,) = session.run(None, {"inputs": pixels})
    wanted = triton.InferInput("inputs", list(pixels.shape), "UINT8")
    wanted.set_data_from_numpy(pixels)
    with triton.InferenceServerClient(address) as client:
        found = client.infer(model, [wanted]).as_numpy("probabilities")
    return float(np.abs(found - expected).max())


def _require_answers(address: str, graph: Path) -> None:
    """Require correct answers; RuntimeError if the server's differ from ONNX Runtime's."""
    difference = _difference(address, "small", graph, 1)
    if not difference <= MAX_DIFFERENCE:
        raise RuntimeError(f"KServe's answer differs from ONNX Runtime's by {difference}")


def _starts(scale: ServingScale, directory: Path, graph: Path) -> Figure:
    """Time the start of the server until a client sees the model ready."""
    progress("server starts")
    repository, taken = directory / "one", list[float]()
    inference_servers.publish(repository, "small", graph)
    for _ in range(scale.starts):
        began = time.perf_counter()
        with inference_servers.serving(repository) as address, triton.InferenceServerClient(address) as client:
            if not client.is_model_ready("small"):
                raise RuntimeError("the server reported that it was serving before its model was ready")
            taken.append(time.perf_counter() - began)
    return Figure(name="start with one model to ready", value=statistics.median(taken), unit="s", at_most=2.0)


def _ratio(name: str, above: Sequence[float], below: Sequence[float], at_least: float | None = None) -> Figure:
    """Return the median of the turns' ratios, which cancels whatever slows a whole turn."""
    value = statistics.median(a / b for a, b in zip(above, below, strict=True))
    return Figure(name=name, value=value, unit="times", at_least=at_least)


def _rates(loads: Mapping[str, Sequence[LoadResult]]) -> dict[str, list[float]]:
    return {name: [load.rate for load in found] for name, found in loads.items()}


def _alternate(what: str, tests: Mapping[str, LoadTest], turns: int) -> dict[str, list[LoadResult]]:
    progress(f"{what}: {turns} turns of {', '.join(tests)}")
    found: dict[str, list[LoadResult]] = {name: [] for name in tests}
    for turn in range(turns):
        for name in list(tests)[:: 1 if turn % 2 else -1]:
            found[name].append(tests[name]())
    return found


def _client_load(address: str, model: str, clients: int, batch: int, scale: ServingScale) -> LoadTest:
    """Load the server with clients in another process."""
    return _load("inference_clients", address, model, clients, batch, scale.seconds)


def _runtime_load(graph: Path, callers: int, threads: int, scale: ServingScale) -> LoadTest:
    """Load ONNX Runtime in another process, with `callers` concurrent runs of `threads` threads each."""
    return _load("onnx_runtime", graph, callers, threads, scale.batch, scale.seconds)


def _load(program: str, *words: object) -> LoadTest:
    command = [sys.executable, "-m", f"benchmarks.load.{program}", *map(str, words)]
    return lambda: LoadResult(
        **json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    )
