"""The inference server: a real process, real clients through tritonclient in another one, on the same cores.

KServe's server is measured where the environment variable KSERVE_PYTHON names a Python that has KServe and ONNX
Runtime: its dependencies do not fit beside ours.
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

from benchmarks.load import servers
from benchmarks.load.closed_loop import Load
from benchmarks.load.servers import KSERVE_PYTHON, SHAPE
from benchmarks.quantised import train_digits
from benchmarks.report import Figure, say
from moonfed.release.variants import FLOAT32, INT8

CORES = os.cpu_count() or 1
MAX_DIFFERENCE = 1e-5  # between two releases of ONNX Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How large the benchmark is."""

    small: str = "cnn"
    large: str = "resnet18"
    turns: int = 5
    seconds: float = 4.0  # of each side in each turn
    clients: tuple[int, ...] = (8, 64)
    batch: int = 32
    starts: int = 5
    epochs: int = 4  # and one more: of digits, before the large model is quantised


Side = Callable[[], Load]


def measure_serving(extent: Extent = Extent()) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="moonfed-bench-") as place:
        directory = Path(place)
        small, large = (servers.write_graph(model, directory) for model in (extent.small, extent.large))
        repository = directory / "models"
        for name, graph in (("small", small), ("large", large)):
            servers.publish(repository, name, graph)
            servers.publish(repository, f"{name}-alone", graph, batching=False)
        return [
            *_small(extent, repository, small),
            *_throughput(extent, repository, large),
            *_batching(extent, repository),
            *_quantised(extent, directory),
            _equality(extent, repository, {"small": small, "large": large}),
            _starts(extent, directory, small),
        ]


def _small(extent: Extent, repository: Path, graph: Path) -> list[Figure]:
    """Batch 1 beside a server that infers nothing, and beside KServe's."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        addresses = {"ours": stack.enter_context(servers.serving(repository))}
        addresses["hollow"] = stack.enter_context(servers.hollow())
        addresses["bare"] = stack.enter_context(servers.hollow(graph))
        if KSERVE_PYTHON:
            addresses["kserve"] = stack.enter_context(servers.kserve(graph, "small"))
            _require_answers(addresses["kserve"], graph)
        for clients in extent.clients:
            sides = {name: _asking(address, "small", clients, 1, extent) for name, address in addresses.items()}
            rates = _rates(_alternate(f"batch 1, {clients} clients", sides, extent.turns))
            what = f"{extent.small}, batch 1, {clients} clients"
            figures += [
                Figure(name=f"{what}: requests a second", value=statistics.median(rates["ours"]), unit="1/s"),
                _ratio(f"{what}: over a server that infers nothing", rates["ours"], rates["hollow"], 0.85),
                _ratio(f"{what}: a server that only infers, over one that does not", rates["bare"], rates["hollow"]),
                _ratio(f"{what}: over a server that only infers", rates["ours"], rates["bare"]),
            ]
            over = f"{what}: over KServe's Python server"
            if KSERVE_PYTHON:
                figures.append(_ratio(over, rates["ours"], rates["kserve"], 1.3))
            else:
                figures.append(Figure(name=over, unit="times", at_least=1.3, reason="KSERVE_PYTHON is not set"))
    return figures


def _throughput(extent: Extent, repository: Path, graph: Path) -> list[Figure]:
    """A large batch through the server, with a request waiting for each that runs, beside ONNX Runtime alone.

    Each side has the cores to itself and is taken as it does best: ONNX Runtime with one run on all cores or with a run
    on each, the server as it is published and started by default, which is the latter.
    """
    with servers.serving(repository) as address:
        sides = {
            "ours": _asking(address, "large-alone", 2 * CORES, extent.batch, extent),
            "one run on all cores": _alone(graph, 1, CORES, extent),
            "a run on each core": _alone(graph, CORES, 1, extent),
        }
        rates = _rates(_alternate(f"batch {extent.batch}", sides, extent.turns))
    ours = rates.pop("ours")
    best = max(rates, key=lambda name: statistics.median(rates[name]))
    what = f"{extent.large}, batch {extent.batch}"
    return [
        Figure(name=f"{what}: samples a second", value=extent.batch * statistics.median(ours), unit="1/s"),
        *(
            Figure(name=f"{what}: ONNX Runtime, {name}", value=extent.batch * statistics.median(found), unit="1/s")
            for name, found in rates.items()
        ),
        _ratio(f"{what}: over ONNX Runtime's own", ours, rates[best], 0.95),
    ]


def _batching(extent: Extent, repository: Path) -> list[Figure]:
    """Batch 1 from many clients, with dynamic batching and without."""
    clients = max(extent.clients)
    figures: list[Figure] = []
    with servers.serving(repository) as address:
        for name, model, at_least in (("large", extent.large, 1.1), ("small", extent.small, 1.0)):
            sides = {
                "batched": _asking(address, name, clients, 1, extent),
                "alone": _asking(address, f"{name}-alone", clients, 1, extent),
            }
            loads = _alternate(f"{model} with and without dynamic batching", sides, extent.turns)
            rates = _rates(loads)
            tails = {side: [load.p99_ms for load in found] for side, found in loads.items()}
            what = f"{model}, batch 1, {clients} clients: dynamic batching over none"
            figures.append(_ratio(f"{what}, requests a second", rates["batched"], rates["alone"], at_least))
            tail = statistics.median(a / b for a, b in zip(tails["batched"], tails["alone"], strict=True))
            at_most = 1.0 if name == "large" else None
            figures.append(Figure(name=f"{what}, p99", value=tail, unit="times", at_most=at_most))
    return figures


def _quantised(extent: Extent, directory: Path) -> list[Figure]:
    """A trained model's int8 variant beside float32, each in one run on all cores."""
    digits = train_digits(extent.large, extent.epochs, directory)
    sides = {name: _alone(digits.files[name], 1, CORES, extent) for name in (INT8, FLOAT32)}
    rates = _rates(_alternate(f"{extent.large} in int8 and float32", sides, extent.turns))
    what = f"{extent.large}, batch {extent.batch}: int8 over float32"
    return [_ratio(what, rates[INT8], rates[FLOAT32], 3.0), *digits.figures(extent.large)]


def _equality(extent: Extent, repository: Path, graphs: Mapping[str, Path]) -> Figure:
    """The largest difference between served answers and those of ONNX Runtime called directly."""
    with servers.serving(repository) as address:
        differences = [
            _difference(address, name, graph, samples)
            for name, graph in graphs.items()
            for samples in (1, extent.batch)
        ]
    name = "served answers' largest difference from ONNX Runtime's"
    return Figure(name=name, value=float(np.max(differences)), unit="", at_most=0.0)  # lets no NaN pass


def _difference(address: str, model: str, graph: Path, samples: int) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # as both servers have it
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(3).integers(0, 256, (samples, *SHAPE), np.uint8)
    (expected,) = session.run(None, {"inputs": pixels})
    wanted = triton.InferInput("inputs", list(pixels.shape), "UINT8")
    wanted.set_data_from_numpy(pixels)
    with triton.InferenceServerClient(address) as client:
        found = client.infer(model, [wanted]).as_numpy("probabilities")
    return float(np.abs(found - expected).max())


def _require_answers(address: str, graph: Path) -> None:
    """Raises RuntimeError for a server that is fast because it answers something else."""
    difference = _difference(address, "small", graph, 1)
    if not difference <= MAX_DIFFERENCE:
        raise RuntimeError(f"KServe's answer differs from ONNX Runtime's by {difference}")


def _starts(extent: Extent, directory: Path, graph: Path) -> Figure:
    """From starting the program until a client has its word that the model is ready."""
    say("starts")
    repository, taken = directory / "one", list[float]()
    servers.publish(repository, "small", graph)
    for _ in range(extent.starts):
        began = time.perf_counter()
        with servers.serving(repository) as address, triton.InferenceServerClient(address) as client:
            if not client.is_model_ready("small"):
                raise RuntimeError("the server says that it serves, and its model is not ready")
            taken.append(time.perf_counter() - began)
    return Figure(name="start with one model to ready", value=statistics.median(taken), unit="s", at_most=2.0)


def _ratio(name: str, above: Sequence[float], below: Sequence[float], at_least: float | None = None) -> Figure:
    """The median of the turns' ratios: what slows a whole turn cancels out."""
    value = statistics.median(a / b for a, b in zip(above, below, strict=True))
    return Figure(name=name, value=value, unit="times", at_least=at_least)


def _rates(loads: Mapping[str, Sequence[Load]]) -> dict[str, list[float]]:
    return {name: [load.rate for load in found] for name, found in loads.items()}


def _alternate(what: str, sides: Mapping[str, Side], turns: int) -> dict[str, list[Load]]:
    say(f"{what}: {turns} turns of {', '.join(sides)}")
    found: dict[str, list[Load]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            found[name].append(sides[name]())
    return found


def _asking(address: str, model: str, clients: int, batch: int, extent: Extent) -> Side:
    """Clients in a process of their own."""
    return _load("requests", address, model, clients, batch, extent.seconds)


def _alone(graph: Path, callers: int, threads: int, extent: Extent) -> Side:
    """ONNX Runtime in a process of its own, so many runs at once with so many threads each."""
    return _load("alone", graph, callers, threads, extent.batch, extent.seconds)


def _load(program: str, *words: object) -> Side:
    command = [sys.executable, "-m", f"benchmarks.load.{program}", *map(str, words)]
    return lambda: Load(**json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
