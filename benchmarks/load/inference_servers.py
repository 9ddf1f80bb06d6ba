"""Start the inference servers under test, each in its own process, and write the models that they serve."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from moonfed.bundle.manifest import GRAPH_FILE, WEIGHTS_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.binding import bind_file
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.model_zoo import PROJECTION
from moonfed.release.repository import ModelDirectory, ModelRelease
from moonfed.release.simplify import simplify
from moonfed.release.triton_config import read_interface, to_text

KSERVE_PYTHON = os.environ.get("KSERVE_PYTHON", "")
CLASSES = tuple(f"class-{number}" for number in range(10))
SHAPE = (32, 32, 3)  # of a picture: height, width, channels
START_SECONDS = 60.0
POLL_SECONDS = 0.1


def write_graph(model: str, directory: Path) -> Path:
    """Write the ONNX file of an untrained model that takes raw pixels."""
    sample = InputSpec(kind="image", shape=SHAPE)
    recipe = BundleRecipe(name=model, model=model, input=sample, target=class_target(CLASSES), projection=PROJECTION)
    bundle = build_bundle(recipe)
    weights, path = directory / f"{model}.safetensors", directory / f"{model}.onnx"
    weights.write_bytes(bundle.contents[WEIGHTS_FILE])
    path.write_bytes(simplify(bind_file(bundle.contents[GRAPH_FILE], weights, bundle.manifest)))
    return path


def publish(repository: Path, name: str, graph: Path, *, batching: bool = True, instances: int = 2) -> None:
    """Publish a model as `moonfed-export repository` does, with or without dynamic batching."""
    content = graph.read_bytes()
    release = ModelRelease(
        interface=read_interface(content, str(graph)), classes=CLASSES, files={"model.onnx": content}
    )
    directory = ModelDirectory(repository, name)
    directory.publish(1, release, instances=instances)
    if not batching:
        config = directory.config()
        config.ClearField("dynamic_batching")
        (directory.path / "config.pbtxt").write_text(to_text(config))


@contextmanager
def serving(repository: Path, *options: str) -> Iterator[str]:
    """Run moonfed's server; yield its gRPC address."""
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    program = str(Path(sys.executable).with_name("moonfed-export"))
    with _started([program, "serve", str(repository), *ports, *options, "--json"]) as line:
        yield f"127.0.0.1:{json.loads(line)['grpc_port']}"


@contextmanager
def serving_http(repository: Path) -> Iterator[tuple[int, int]]:
    """Run moonfed's server; yield its HTTP port and its process id."""
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    program = str(Path(sys.executable).with_name("moonfed-export"))
    with _started_process([program, "serve", str(repository), *ports, "--json"]) as (line, process):
        yield json.loads(line)["http_port"], process.pid


@contextmanager
def no_op(*graph: Path) -> Iterator[str]:
    """Run the no-op server, or with a graph the inference-only server; yield its address."""
    with _started([sys.executable, "-m", "benchmarks.load.no_op_server", *map(str, graph)]) as line:
        yield f"127.0.0.1:{line}"


@contextmanager
def kserve(graph: Path, name: str) -> Iterator[str]:
    """Run KServe's Python server; yield its gRPC address."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [str(free.getsockname()[1]) for free in (first, second)]
    script = Path(__file__).with_name("kserve_server.py")
    program = [KSERVE_PYTHON, "-I", str(script), str(graph), name, *ports]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"127.0.0.1:{ports[0]}"
        _await(address, process)
        yield address
    finally:
        process.terminate()
        process.wait()


def _await(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server accepts calls; RuntimeError if it exits or takes too long."""
    end = time.monotonic() + START_SECONDS
    with grpc.insecure_channel(address) as channel:
        ready = grpc.channel_ready_future(channel)
        while not ready.done():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{process.args!r} did not start")
            time.sleep(POLL_SECONDS)


@contextmanager
def _started(program: Sequence[str]) -> Iterator[str]:
    """Start a server; yield its first line; terminate it with the context."""
    with _started_process(program) as (line, _):
        yield line


@contextmanager
def _started_process(program: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server; yield its first line and its process; terminate it with the context."""
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = process.stdout.readline().strip() if process.stdout else ""
        if not line:
            raise RuntimeError(f"{program[:4]!r} exited before it served")
        yield line, process
    finally:
        process.terminate()
        process.communicate()
