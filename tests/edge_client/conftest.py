from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.blobs.tensors import write_model
from moonfed.bundle.manifest import FILES, PLAN_FILE, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import read_identity, store_identity
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import StoredRound, Update
from moonfed.edge_client.state.trust import pin
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import ExchangeShapes, Method
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors, tensor_specs
from moonfed.export.optimiser import Sgd
from moonfed.fleet.assignment import AttemptId
from moonfed.plan.training_spec import TrainingSpec
from moonfed.sandbox.policy import available_level
from moonfed.transport.client import to_message
from moonfed.transport.identity import CA_FILE
from moonfed.v1 import fleet_pb2
from tests.support.authority import DAY, Authority, certified_key
from tests.support.compiled import cached_plan
from tests.support.device_coordinator import PATIENCE, Coordinator
from tests.support.ended_processes import still_running
from tests.support.forked_process import PATCHES
from tests.support.signatures import TRUST, signature

FEATURES = InputSpec(kind="features", shape=(6,))
TASK = "0" * 64  # the digest of an assignment
CLASSES = ("left", "middle", "right")
PROGRAM = Path(sys.executable).with_name("moonfed-client")
SANDBOX = available_level()  # strict, unless this kernel is an old one


@dataclass(frozen=True)
class Bundle:
    """A real bundle without its graph, which no device needs."""

    manifest: Manifest
    plan: bytes
    weights: bytes
    signature: bytes

    def put_into(self, blobs: BlobDirectory) -> BlobRef:
        blobs.put_bytes(self.signature)
        blobs.put_bytes(self.plan)
        blobs.put_bytes(self.weights)
        return blobs.put_bytes(self.manifest.to_bytes())

    def trained(self, blobs: BlobDirectory, **training: Any) -> Bundle:
        """Return the bundle with other training settings, stored in these blobs."""
        manifest = replace(self.manifest, training=replace(self.manifest.training, **training))
        changed = replace(self, manifest=manifest, signature=signature(manifest.to_bytes()).to_bytes())
        changed.put_into(blobs)
        return changed

    @property
    def digest(self) -> str:
        """Return the manifest's digest."""
        return ref_of_bytes(self.manifest.to_bytes()).sha256

    def assignment(self, *, run: str = "tested", **fields: Any) -> fleet_pb2.Assignment:
        """An assignment's message; `fields` are its own and those of its training."""
        spec = self.manifest.training.to_document()
        spec |= {name: fields.pop(name) for name in list(spec) if name in fields}
        settings: dict[str, Any] = {"round": 1, "attempt": 1, "seed": 7} | fields
        return fleet_pb2.Assignment(
            run=run,
            manifest=to_message(ref_of_bytes(self.manifest.to_bytes())),
            signature=to_message(ref_of_bytes(self.signature)),
            blobs={"model": to_message(ref_of_bytes(self.weights))},
            training=fleet_pb2.TrainingSpec(**spec),
            **settings,
        )


def check_of(bundle: Bundle, run: str = "tested") -> fleet_pb2.EligibilityCheck:
    """A check of a run of that bundle."""
    return fleet_pb2.EligibilityCheck(
        run=run,
        manifest=to_message(ref_of_bytes(bundle.manifest.to_bytes())),
        signature=to_message(ref_of_bytes(bundle.signature)),
    )


def evaluation_of(bundle: Bundle, number: int = 1, run: str = "tested") -> fleet_pb2.EvaluationTask:
    """An evaluation of the bundle's initial weights in a run of that bundle."""
    return fleet_pb2.EvaluationTask(
        run=run,
        round=1,
        number=number,
        manifest=to_message(ref_of_bytes(bundle.manifest.to_bytes())),
        signature=to_message(ref_of_bytes(bundle.signature)),
        model=to_message(ref_of_bytes(bundle.weights)),
        seed=7,
    )


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """MOON with one previous model."""
    return new_bundle(tmp_path_factory.mktemp("bundle"), "moon", METHODS["moon"](mu=1.0, tau=0.5, previous_models=1))


@pytest.fixture(scope="session")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """SCAFFOLD, whose devices receive, send and keep more than a model."""
    return new_bundle(tmp_path_factory.mktemp("scaffold"), "scaffold", METHODS["scaffold"]())


def new_bundle(directory: Path, name: str, method: Method) -> Bundle:
    """A method on a small perceptron for six features and three classes."""
    network = build_network("mlp", FEATURES, class_target(CLASSES), mean=None, deviation=None, seed=3)
    sgd = Sgd()
    hyperparameters = {
        "learning_rate": 0.02,
        "momentum": sgd.momentum,
        "weight_decay": sgd.weight_decay,
        **method.hyperparameters(),
    }
    plan = cached_plan(network, method, hyperparameters)
    specs = tensor_specs(network)
    shapes = ExchangeShapes(tensors=specs, classes=len(CLASSES), width=256)
    file = directory / "initial.safetensors"
    write_model(file, specs, (tensor.detach().numpy().ravel() for tensor in exchanged_tensors(network).values()))
    manifest = Manifest(
        name="tested",
        model="mlp",
        method=name,
        previous_models=method.previous_models,
        downlink=method.downlink(shapes),
        uplink=method.uplink(shapes),
        device_state=method.device_state(shapes),
        training=TrainingSpec(epochs=2, batch_size=8, hyperparameters=hyperparameters),
        input=FEATURES,
        target=class_target(CLASSES),
        tensors=specs,
        plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.4", activation_bytes=0, minimum_samples=2),
        files={name: ref_of_bytes(plan if name == PLAN_FILE else b"") for name in FILES},
    )
    return Bundle(manifest, plan, file.read_bytes(), signature(manifest.to_bytes()).to_bytes())


def write_samples(path: Path, count: int = 40, seed: int = 0) -> Path:
    """Write clouds of samples around one centre per class."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, len(CLASSES), count)
    inputs = generator.normal(size=(count, 6)) + 3 * np.eye(6)[labels]
    np.savez(path, inputs=inputs.astype(np.float32), labels=labels)
    return path


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return write_samples(tmp_path / "samples.npz")


@pytest.fixture
def coordinator(tmp_path: Path, bundle: Bundle) -> Iterator[Coordinator]:
    started = Coordinator(tmp_path / "coordinator", Authority())
    bundle.put_into(started.blobs)
    started.serve()
    yield started
    started.stop()


@dataclass
class Device:
    """One real moonfed-client process, enrolled with the test's coordinator."""

    directory: Path
    coordinator: Coordinator
    process: subprocess.Popen[str] | None = None
    _log: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None
    _grown: threading.Condition = field(default_factory=threading.Condition)

    @property
    def state(self) -> Path:
        return self.directory / "device"

    def enrol(self, authority: Authority | None = None, **ages: timedelta) -> None:
        key, certificate = self.coordinator.authority.issue("cam-1", "device", **ages)
        ca = self.coordinator.authority.pem
        self.coordinator.keys["cam-1"] = certified_key(certificate)
        pin(self.state, TRUST)
        store_identity(self.state, address=self.coordinator.address, ca=ca, certificate=certificate, key=key)
        if authority:  # another one than certified the device
            (self.state / "identity" / CA_FILE).write_bytes(authority.pem)

    def start(self, data: str | Path | None, *options: str) -> None:
        """Start the device; `data`: None for inference only."""
        if not (self.state / "identity").exists():
            self.enrol()
        self.process = subprocess.Popen(
            [
                str(PROGRAM),
                "run",
                *(() if data is None else ("--data", str(data))),
                "--state",
                str(self.state),
                "--threads",
                "1",
                "--sandbox",
                SANDBOX,
                *options,
            ],
            cwd=self.directory,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log = []
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr
        with process.stderr:
            for line in process.stderr:
                with self._grown:
                    self._log.append(line)
                    self._grown.notify_all()

    def wait_for_log(self, text: str) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: text in "".join(self._log), PATIENCE), "".join(self._log)

    def processes(self) -> list[psutil.Process]:
        """The program and everything that it started."""
        assert self.process
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def finish(self) -> tuple[int, str]:
        """Wait for the end; return exit code and log."""
        assert self.process
        assert self._reader
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return self.process.returncode, "".join(self._log)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        assert self.process
        self.process.send_signal(number)
        return self.finish()


@pytest.fixture
def device(tmp_path: Path, coordinator: Coordinator, forked_programs: None) -> Iterator[Device]:
    made = Device(tmp_path, coordinator)
    yield made
    if made.process and made.process.poll() is None:
        made.process.kill()
    if made.process:
        made.finish()


@pytest.fixture
def hasty_programs(monkeypatch: pytest.MonkeyPatch, forked_programs: None) -> None:
    """Fork programs that retry and report ten times as often."""
    monkeypatch.setenv(PATCHES, "tests.support.hasty")


@pytest.fixture
def new_job(bundle: Bundle, tmp_path: Path) -> Callable[..., Job]:
    """Return a function that makes jobs whose files exist."""
    return job_maker(bundle, BlobDirectory(tmp_path / "blobs"))


def job_maker(bundle: Bundle, blobs: BlobDirectory) -> Callable[..., Job]:
    """Make jobs with a bundle; `files` are added to the global model's.

    `fields` are those of the job, of its id and of its training.
    """
    manifest = bundle.put_into(blobs)

    def make(files: Mapping[str, str] | None = None, counted_round: int = 0, **fields: object) -> Job:
        id_: dict[str, object] = {"run": "tested", "round": 1, "attempt": 1}
        id_ |= {name: fields.pop(name) for name in list(id_) if name in fields}
        spec = replace(bundle.manifest.training, epochs=2, batch_size=8).to_document()
        spec |= {name: fields.pop(name) for name in list(spec) if name in fields}
        usual: dict[str, object] = {
            "id": AttemptId(**id_),  # type: ignore[arg-type]
            "training": TrainingSpec(**spec),
            "seed": 1,
            "digest": TASK,
            "manifest_file": str(blobs.path(manifest.sha256)),
            "plan_file": str(blobs.path(bundle.manifest.files["plan.pt"].sha256)),
        }
        if counted_round:
            usual["counted"] = AttemptId(run=str(id_["run"]), round=counted_round, attempt=1)
        model = {"model": str(blobs.path(ref_of_bytes(bundle.weights).sha256))}
        return Job(**(usual | fields), files={**model, **(files or {})})  # type: ignore[arg-type]

    return make


@pytest.fixture
def link(device: Device) -> Iterator[FleetConnection]:
    """An enrolled device's connection, in this process."""
    device.enrol()
    identity = read_identity(device.state)
    opened = FleetConnection(identity.address, identity.name, identity)
    yield opened
    opened.close()


@pytest.fixture
def stored(tmp_path: Path) -> StoredRound:
    """A fabricated update: a submitted model with a change, and a device state."""
    contents = {"model": b"a model", "variate_change": b"a change", "device_variate": b"a secret"}
    for role, content in contents.items():
        (tmp_path / f"{role}.safetensors").write_bytes(content)
    refs = {role: ref_of_bytes(content) for role, content in contents.items()}
    kept = {"device_variate": refs.pop("device_variate")}
    update = Update(manifest=TASK, seed=7, assignment=TASK, blobs=refs, kept=kept, samples=3, steps=2,
                    metrics={"loss": 1.5}, personal_lost=True)  # fmt: skip
    return StoredRound(tmp_path, 1, 1, update)


@pytest.fixture
def user_module(tmp_path: Path) -> Callable[[str], str]:
    """Write a module with a function `load` in the device's working directory; return the value for `--data`."""

    def write(body: str) -> str:
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        text = f"import os, signal, sys, time\nimport numpy as np\n\ndef load(spec, classes):\n{lines}\n"
        (tmp_path / "user_data.py").write_text(text)
        return "user_data:load"

    return write


def wait_until_gone(processes: list[psutil.Process]) -> None:
    assert not still_running(processes, PATIENCE)


__all__ = [
    "CLASSES",
    "DAY",
    "FEATURES",
    "TASK",
    "Bundle",
    "Device",
    "check_of",
    "job_maker",
    "wait_until_gone",
    "write_samples",
]
