"""Building blocks of the coordinator's benchmarks: its process, a bundle of any size, devices, and a timed round."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.load.synthetic_devices import FleetSpec
from benchmarks.report import progress
from moonfed.blobs.store import BlobRef, ref_of_bytes, ref_of_file
from moonfed.blobs.tensors import TensorSpec, write_model
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_FILE, WEIGHTS_FILE, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.client import Coordinator, NewToken, RoundCommitted, Run, Snapshot
from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.experiments.child_processes import ChildProcesses
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.plan.training_spec import TrainingSpec
from moonfed.signing.key_files import open_signer
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2
from moonfed.version import PLAN_INTERFACE

LAYERS = 20  # tensors of the model
TIMEOUT = 300.0  # seconds, of every wait
MALLOC = {  # as in deploy/moonfed-coordinator.service
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(8 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticModel:
    """Random model of a given size, rounded to whole layers."""

    megabytes: float

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        size = round(self.megabytes * 1e6 / 4 / LAYERS)
        return tuple(TensorSpec(f"layer{number:02}.weight", (size,), "parameter") for number in range(LAYERS))

    def write(self, path: Path, seed: int) -> BlobRef:
        """Write random weights."""
        generator = np.random.default_rng(seed)
        layers = (generator.standard_normal(spec.size, dtype=np.float32) for spec in self.specs)
        write_model(path, self.specs, layers)
        return ref_of_file(path)

    def bundle(self, directory: Path) -> Bundle:
        """Build a bundle of the model; its plan and graph are placeholders that no device could open."""
        weights = directory / WEIGHTS_FILE
        self.write(weights, seed=0)
        contents = {"plan.pt": b"no plan", "model.onnx": b"", WEIGHTS_FILE: weights.read_bytes()}
        manifest = Manifest(
            name="benchmark",
            model="mlp",
            method="fedavg",
            previous_models=0,
            training=TrainingSpec(epochs=1, batch_size=8, hyperparameters={"learning_rate": 0.1}),
            input=InputSpec(kind="features", shape=(4,)),
            target=class_target(("a", "b")),
            tensors=self.specs,
            plan=PlanSpec(interface=PLAN_INTERFACE, minimum_torch="2.4", built_with_torch="2.6", activation_bytes=0),
            files={file: ref_of_bytes(content) for file, content in contents.items()},
        )
        bundle = Bundle(manifest, {MANIFEST_FILE: manifest.to_bytes(), **contents})
        return sign_new(bundle, open_signer([], progress), SigningOptions()).bundle

    def updates(self, directory: Path, number: int) -> tuple[tuple[str, str, int], ...]:
        """Write that many distinct updates; return path, sha256 and bytes of each."""
        directory.mkdir(exist_ok=True)
        made = []
        for seed in range(1, number + 1):
            ref = self.write(directory / str(seed), seed)
            made.append((str(directory / str(seed)), ref.sha256, ref.size))
        return tuple(made)


@dataclass(frozen=True, slots=True)
class CoordinatorProcess:
    """A coordinator in its own process."""

    state: Path
    process: subprocess.Popen[str]
    client: Coordinator
    address: str
    ready: str = "{}"  # the line of JSON that it printed

    def token(self, uses: int) -> str:
        """Create a join token for that many devices."""
        request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=3600.0)
        return self.client.connection.ask(NewToken, "CreateToken", request).token

    def megabytes(self, field: str) -> float:
        """Read `VmHWM`, the peak resident set, or `VmRSS`, the current one, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{field}:"))

    def start_run(self, bundle: Bundle, name: str, devices: int, rounds: int = 1) -> None:
        """Start a run whose rounds need an update from every device."""
        settings = RunSettings(
            rounds=rounds,
            minimum_devices=devices,
            quorum=Amount(fraction=1.0),
            deadline=TIMEOUT,
            heartbeat_timeout=TIMEOUT,
            trusting=True,
        )
        request = control_pb2.StartRunRequest(
            name=name, manifest=bundle.ref.sha256, settings=settings.to_json(), signature=bundle.signature_sha256
        )
        self.client.connection.ask(Run, "StartRun", request, once=True)

    def round_seconds(self, bundle: Bundle, name: str, devices: int, rounds: int = 1) -> list[float]:
        """Time each round of a run; every update must be counted.

        The first one is timed from the operator's call, and includes the devices' checks of their eligibility, which
        take place once in a run.
        """
        commits = [time.perf_counter()]
        self.start_run(bundle, name, devices, rounds)
        for event in self.client.watch(name, progress=False):
            if isinstance(event, RoundCommitted) or (isinstance(event, Snapshot) and event.run.round):
                commits.append(time.perf_counter())
            if len(commits) > rounds:
                break
        found = self.client.rounds(name)
        if [len(each.counted) for each in found] != [devices] * rounds:
            raise RuntimeError(f"{name} did not count every update: {found}")
        return [after - before for before, after in pairwise(commits)]


@contextmanager
def served(state: Path, logs: Path, *options: str) -> Iterator[CoordinatorProcess]:
    """Run a coordinator with these options of `serve` on a state directory until the context ends."""
    with ChildProcesses(logs) as fleet:
        process = fleet.start(
            *("coordinator", "moonfed-coordinator", "serve", "--state", str(state)),
            *("--fleet-port", "0", "--enrolment-port", "0", "--json"),
            *options,
            env=MALLOC,
        )
        ready = fleet.first_line("coordinator")
        with Coordinator(state / "operator") as client:
            yield CoordinatorProcess(state, process, client, load_identity(state / "operator").address, ready)


@contextmanager
def connected(spec: FleetSpec, address: str) -> Iterator[subprocess.Popen[str]]:
    """Keep a process of synthetic devices online until the context ends."""
    Path(spec.directory).mkdir(parents=True, exist_ok=True)
    process = _start("benchmarks.load.synthetic_devices", spec.to_json(), address)
    try:
        expect(process, "connected")
        yield process
    finally:
        _end(process)


@contextmanager
def baseline(authority: Path, model: Path, spool: Path, devices: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the baseline coordinator; yield its process and its address."""
    spool.mkdir()
    process = _start("benchmarks.load.baseline_coordinator", str(authority), str(model), str(spool), str(devices))
    try:
        yield process, f"127.0.0.1:{expect(process)}"
    finally:
        _end(process)


@contextmanager
def attacked(kind: str, *target: str) -> Iterator[None]:
    """Attack a coordinator from another process until the context ends."""
    process = _start("benchmarks.load.attackers", kind, *target)
    try:
        expect(process, "attacking")
        yield
    finally:
        _end(process)


def expect(process: subprocess.Popen[str], word: str = "") -> str:
    """Read the next line of a helper process; RuntimeError if it is empty or not the expected word."""
    line = process.stdout.readline().strip() if process.stdout else ""
    if not line or word not in ("", line):
        raise RuntimeError(f"{process.args!r:.80} said {line!r}")
    return line


def baseline_seconds(process: subprocess.Popen[str]) -> float:
    """Time one round of the baseline coordinator."""
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
