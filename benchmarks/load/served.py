"""What a coordinator's benchmarks stand on: a served state, a bundle of any size, devices, and a round's time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.load.devices import Plan
from moonfed import transport
from moonfed.blobs import BlobRef, ref_of_bytes, ref_of_file
from moonfed.bundle import Bundle
from moonfed.coordinator.cli.control_client import Console, connect
from moonfed.experiments.child_processes import Fleet
from moonfed.identity import load_identity
from moonfed.manifest import MANIFEST_FILE, WEIGHTS_FILE, InputSpec, LocalTraining, Manifest, PlanSpec
from moonfed.tensors import TensorSpec, write_model
from moonfed.v1 import control_pb2
from moonfed.version import PLAN_INTERFACE

LAYERS = 20  # tensors of the model
WAIT = 300.0  # seconds for anything here


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of so many bytes, rounded to whole layers."""

    megabytes: float

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        size = round(self.megabytes * 1e6 / 4 / LAYERS)
        return tuple(TensorSpec(f"layer{number:02}.weight", (size,), "parameter") for number in range(LAYERS))

    def write(self, path: Path, seed: int) -> BlobRef:
        """Random weights."""
        generator = np.random.default_rng(seed)
        layers = (generator.standard_normal(spec.size, dtype=np.float32) for spec in self.specs)
        write_model(path, self.specs, layers)
        return ref_of_file(path)

    def bundle(self, directory: Path) -> Bundle:
        """A bundle of it; its plan and graph are nothing that a device could open."""
        weights = directory / WEIGHTS_FILE
        self.write(weights, seed=0)
        contents = {"plan.pt": b"no plan", "model.onnx": b"no graph", WEIGHTS_FILE: weights.read_bytes()}
        manifest = Manifest(
            name="benchmark",
            model="mlp",
            method="fedavg",
            hyperparameters={"learning_rate": 0.1},
            previous_models=0,
            training=LocalTraining(epochs=1, batch_size=8),
            input=InputSpec(kind="features", shape=(4,)),
            classes=("a", "b"),
            tensors=self.specs,
            plan=PlanSpec(interface=PLAN_INTERFACE, minimum_torch="2.4", built_with_torch="2.6", activation_bytes=0),
            files={file: ref_of_bytes(content) for file, content in contents.items()},
        )
        return Bundle(manifest, {MANIFEST_FILE: manifest.to_bytes(), **contents})

    def updates(self, directory: Path, number: int) -> tuple[tuple[str, str, int], ...]:
        """So many different updates on disk."""
        directory.mkdir(exist_ok=True)
        made = []
        for seed in range(1, number + 1):
            ref = self.write(directory / str(seed), seed)
            made.append((str(directory / str(seed)), ref.sha256, ref.size))
        return tuple(made)


@dataclass(frozen=True, slots=True)
class Served:
    """A coordinator in a process of its own."""

    state: Path
    process: subprocess.Popen[str]
    console: Console
    address: str

    def token(self, uses: int) -> str:
        """A join token for so many devices."""
        request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=3600.0)
        return str(self.console.ask(self.console.control.CreateToken, request).token)

    def megabytes(self, field: str) -> float:
        """`VmHWM`, the largest resident set so far, or `VmRSS`, the present one."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{field}:"))

    def start_run(self, bundle: Bundle, name: str, devices: int, rounds: int = 1) -> None:
        """A run that every device takes part in, and that is in want of each of them."""
        everybody = control_pb2.Amount(fraction=1.0)
        settings = control_pb2.RunSettings(
            rounds=rounds,
            cohort=everybody,
            minimum_devices=devices,
            quorum=everybody,
            deadline_seconds=WAIT,
            patience_seconds=WAIT,
        )
        request = control_pb2.StartRunRequest(name=name, manifest=bundle.ref.sha256, settings=settings)
        transport.call(self.console.control.StartRun, request, timeout=WAIT)

    def round_seconds(self, bundle: Bundle, name: str, devices: int) -> float:
        """From the operator's call to the word that the only round of a new run is committed, with every update."""
        began = time.perf_counter()
        self.start_run(bundle, name, devices)
        for event in self.console.control.WatchRun(control_pb2.WatchRunRequest(run=name), timeout=WAIT):
            if event.kind == control_pb2.EVENT_KIND_ROUND_COMMITTED or event.run.round:
                break
        seconds = time.perf_counter() - began
        found = list(self.console.control.ListRounds(control_pb2.ListRoundsRequest(run=name)))
        if len(found) != 1 or len(found[0].counted) != devices:
            raise RuntimeError(f"{name} did not count every update: {found}")
        return seconds


@contextmanager
def served(state: Path, logs: Path) -> Iterator[Served]:
    """Serves a state until the context ends."""
    with Fleet(logs) as fleet:
        process = fleet.start(
            *("coordinator", "moonfed-coordinator", "serve", "--state", str(state)),
            *("--fleet-port", "0", "--enrolment-port", "0", "--json"),
        )
        fleet.first_line("coordinator")
        with connect(state / "operator", insecure=False, address=None) as console:
            yield Served(state, process, console, load_identity(state / "operator").address)


@contextmanager
def attending(plan: Plan, address: str) -> Iterator[subprocess.Popen[str]]:
    """Devices in a process of their own that all attend, until the context ends."""
    Path(plan.directory).mkdir(parents=True, exist_ok=True)
    process = _start("benchmarks.load.devices", plan.to_json(), address)
    try:
        expect(process, "attending")
        yield process
    finally:
        _end(process)


@contextmanager
def bare(authority: Path, model: Path, spool: Path, devices: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The bare server's process and its address."""
    spool.mkdir()
    process = _start("benchmarks.load.bare", str(authority), str(model), str(spool), str(devices))
    try:
        yield process, f"127.0.0.1:{expect(process)}"
    finally:
        _end(process)


def expect(process: subprocess.Popen[str], word: str = "") -> str:
    """The next line that a helper prints, which is to be that word."""
    line = process.stdout.readline().strip() if process.stdout else ""
    if not line or word not in ("", line):
        raise RuntimeError(f"{process.args!r:.80} said {line!r}")
    return line


def bare_seconds(process: subprocess.Popen[str]) -> float:
    """One round of the bare server."""
    began = time.perf_counter()
    if process.stdin:
        process.stdin.write("\n")
        process.stdin.flush()
    expect(process, "all in")
    return time.perf_counter() - began


def _start(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
