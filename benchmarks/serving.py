"""The inference server: a real process, real clients through tritonclient in another one, on the same cores.

KServe's server is measured where the environment variable KSERVE_PYTHON names a Python that has KServe and ONNX
Runtime: its dependencies do not fit beside ours.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import onnxruntime
import tritonclient.grpc as triton

from benchmarks.report import Figure, say
from export.binding import bind_file
from export.bundling import build_bundle
from export.recipe import Recipe
from export.release.configuration import read_interface, to_text
from export.release.repository import ModelDirectory, Release
from moonfed.manifest import GRAPH_FILE, WEIGHTS_FILE, InputSpec

KSERVE_PYTHON = os.environ.get("KSERVE_PYTHON", "")
CLASSES = tuple(f"class-{number}" for number in range(10))
START_SECONDS = 60.0
SHAPE = (32, 32, 3)


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


@dataclass(frozen=True, slots=True)
class Load:
    """What clients get of a server."""

    rate: float  # requests a second
    median_ms: float
    p99_ms: float


Side = Callable[[], Load]


def measure_serving(extent: Extent = Extent()) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="moonfed-bench-") as place:
        directory = Path(place)
        small, large = _graph(extent.small, directory), _graph(extent.large, directory)
        repository = directory / "models"
        for name, graph in (("small", small), ("large", large)):
            _publish(repository, name, graph)
            _publish(repository, f"{name}-alone", graph, batching=False)
        return [
            *_small(extent, repository, small),
            *_throughput(extent, repository, large),
            *_batching(extent, repository),
            _equality(extent, repository, large),
            _starts(extent, directory, small),
        ]


def _small(extent: Extent, repository: Path, graph: Path) -> list[Figure]:
    """Batch 1 beside a server that infers nothing, and beside KServe's."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        servers = {"ours": stack.enter_context(_serving(repository)), "hollow": stack.enter_context(_hollow())}
        if KSERVE_PYTHON:
            servers["kserve"] = stack.enter_context(_kserve(graph))
        for clients in extent.clients:
            sides = {name: _asking(address, "small", clients, 1, extent) for name, address in servers.items()}
            loads = _alternate(f"batch 1, {clients} clients", sides, extent.turns)
            rates = {name: [load.rate for load in found] for name, found in loads.items()}
            what = f"{extent.small}, batch 1, {clients} clients"
            figures += [
                Figure(name=f"{what}: requests a second", value=statistics.median(rates["ours"]), unit="1/s"),
                _ratio(f"{what}: over a server that infers nothing", rates["ours"], rates["hollow"], 0.85),
            ]
            over = f"{what}: over KServe's Python server"
            if KSERVE_PYTHON:
                figures.append(_ratio(over, rates["ours"], rates["kserve"], 1.3))
            else:
                figures.append(Figure(name=over, unit="times", at_least=1.3, reason="KSERVE_PYTHON is not set"))
    return figures


def _throughput(extent: Extent, repository: Path, graph: Path) -> list[Figure]:
    """A large batch through the server beside ONNX Runtime in this process; both may use all cores."""
    batch = np.zeros((extent.batch, *SHAPE), np.uint8)
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])

    def alone() -> Load:
        taken: list[float] = []
        end = time.perf_counter() + extent.seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            session.run(None, {"inputs": batch})
            taken.append(time.perf_counter() - began)
        return Load(len(taken) / sum(taken), 1e3 * statistics.median(taken), 1e3 * max(taken))

    with _serving(repository, "--intra-op-threads", "0") as address:
        ours = _asking(address, "large-alone", 2, extent.batch, extent)
        loads = _alternate(f"batch {extent.batch}", {"ours": ours, "alone": alone}, extent.turns)
    rates = {name: [load.rate * extent.batch for load in found] for name, found in loads.items()}
    what = f"{extent.large}, batch {extent.batch}"
    return [
        Figure(name=f"{what}: samples a second", value=statistics.median(rates["ours"]), unit="1/s"),
        _ratio(f"{what}: over ONNX Runtime's own", rates["ours"], rates["alone"], 0.95),
    ]


def _batching(extent: Extent, repository: Path) -> list[Figure]:
    """Batch 1 from many clients, with dynamic batching and without."""
    clients = max(extent.clients)
    figures: list[Figure] = []
    with _serving(repository) as address:
        for name, model, at_least in (("large", extent.large, 1.1), ("small", extent.small, 1.0)):
            sides = {
                "batched": _asking(address, name, clients, 1, extent),
                "alone": _asking(address, f"{name}-alone", clients, 1, extent),
            }
            loads = _alternate(f"{model} with and without dynamic batching", sides, extent.turns)
            rates = {side: [load.rate for load in found] for side, found in loads.items()}
            tails = {side: [load.p99_ms for load in found] for side, found in loads.items()}
            what = f"{model}, batch 1, {clients} clients: dynamic batching over none"
            figures.append(_ratio(f"{what}, requests a second", rates["batched"], rates["alone"], at_least))
            tail = statistics.median(a / b for a, b in zip(tails["batched"], tails["alone"], strict=True))
            at_most = 1.0 if name == "large" else None
            figures.append(Figure(name=f"{what}, p99", value=tail, unit="times", at_most=at_most))
    return figures


def _equality(extent: Extent, repository: Path, graph: Path) -> Figure:
    """The largest difference between served answers and those of ONNX Runtime called directly."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(3).integers(0, 256, (extent.batch, *SHAPE), np.uint8)
    (expected,) = session.run(None, {"inputs": pixels})
    with _serving(repository) as address, triton.InferenceServerClient(address) as client:
        wanted = triton.InferInput("inputs", list(pixels.shape), "UINT8")
        wanted.set_data_from_numpy(pixels)
        found = client.infer("large", [wanted]).as_numpy("probabilities")
    difference = float(np.abs(found - expected).max())
    return Figure(name="served answers' largest difference from ONNX Runtime's", value=difference, unit="", at_most=0.0)


def _starts(extent: Extent, directory: Path, graph: Path) -> Figure:
    """From starting the program to its word that it serves."""
    say("starts")
    repository, taken = directory / "one", list[float]()
    _publish(repository, "small", graph)
    for _ in range(extent.starts):
        began = time.perf_counter()
        with _serving(repository):
            taken.append(time.perf_counter() - began)
    return Figure(name="start with one model to ready", value=statistics.median(taken), unit="s", at_most=2.0)


def _ratio(name: str, above: Sequence[float], below: Sequence[float], at_least: float) -> Figure:
    """The median of the turns' ratios: what slows a whole turn cancels out."""
    value = statistics.median(a / b for a, b in zip(above, below, strict=True))
    return Figure(name=name, value=value, unit="times", at_least=at_least)


def _alternate(what: str, sides: dict[str, Side], turns: int) -> dict[str, list[Load]]:
    say(f"{what}: {turns} turns of {', '.join(sides)}")
    found: dict[str, list[Load]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            found[name].append(sides[name]())
    return found


def _asking(address: str, model: str, clients: int, batch: int, extent: Extent) -> Side:
    """Clients in a process of their own."""
    words = [address, model, str(clients), str(batch), str(extent.seconds)]

    def ask() -> Load:
        command = [sys.executable, "-m", "benchmarks.load.requests", *words]
        return Load(**json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))

    return ask


def _graph(model: str, directory: Path) -> Path:
    """The ONNX file of an untrained model that takes raw pixels."""
    sample = InputSpec(kind="image", shape=SHAPE)
    bundle = build_bundle(Recipe(name=model, model=model, input=sample, classes=CLASSES))
    weights, path = directory / f"{model}.safetensors", directory / f"{model}.onnx"
    weights.write_bytes(bundle.contents[WEIGHTS_FILE])
    path.write_bytes(bind_file(bundle.contents[GRAPH_FILE], weights, bundle.manifest))
    return path


def _publish(repository: Path, name: str, graph: Path, *, batching: bool = True) -> None:
    content = graph.read_bytes()
    release = Release(interface=read_interface(content, str(graph)), classes=CLASSES, files={"model.onnx": content})
    directory = ModelDirectory(repository, name)
    directory.publish(1, release)
    if not batching:
        config = directory.config()
        config.ClearField("dynamic_batching")
        (directory.path / "config.pbtxt").write_text(to_text(config))


@contextmanager
def _serving(repository: Path, *options: str) -> Iterator[str]:
    """Our server's gRPC address."""
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    program = str(Path(sys.executable).with_name("moonfed-export"))
    with _started([program, "serve", str(repository), *ports, *options, "--json"]) as line:
        yield f"127.0.0.1:{json.loads(line)['grpc_port']}"


@contextmanager
def _hollow() -> Iterator[str]:
    with _started([sys.executable, "-m", "benchmarks.load.hollow"]) as line:
        yield f"127.0.0.1:{line}"


@contextmanager
def _kserve(graph: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [str(free.getsockname()[1]) for free in (first, second)]
    script = Path(__file__).parent / "load" / "kserve_model.py"
    process = subprocess.Popen([KSERVE_PYTHON, str(script), str(graph), "small", *ports], stderr=subprocess.DEVNULL)
    try:
        address = f"127.0.0.1:{ports[0]}"
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(START_SECONDS)
        yield address
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _started(program: Sequence[str]) -> Iterator[str]:
    """A server's first line; it is ended with the context."""
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = process.stdout.readline().strip() if process.stdout else ""
        if not line:
            raise RuntimeError(f"{program[:4]!r} ended before it served")
        yield line
    finally:
        process.terminate()
        process.communicate()
