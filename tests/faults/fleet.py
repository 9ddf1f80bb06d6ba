"""Coordinators as processes, and devices that train by arithmetic but use the device's real connection."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.blobs.tensors import TensorSpec, Vector, model_size
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_FILE, WEIGHTS_FILE
from moonfed.coordinator.storage.store import Store
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.state.round_store import StoredRound, Update
from moonfed.errors import MoonfedError, ResourceExhausted, Unavailable
from moonfed.fleet.assignment import Assignment, AttemptId
from moonfed.fleet.messages import read_assignment
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2
from tests.faults.program import CLOCK, Clock, Fault, environment_of
from tests.support import coordinator
from tests.support.forked_programs import ForkedPopen
from tests.support.ports import free_ports
from tests.support.signatures import signed

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "common"), str(ROOT / "proto")])}
PATIENCE = 100.0  # seconds after which a test gives up; nothing is asserted about time
SAMPLES = {"cam-1": 10, "cam-2": 25, "cam-3": 40}


def bundle_of(elements: int) -> Bundle:
    """Return a bundle whose model has that many elements, starting from 1."""
    specs = (TensorSpec("weight", (elements,), "parameter"),)
    made = coordinator.make_bundle(tensors=specs)
    contents = {**made.contents, WEIGHTS_FILE: coordinator.model_bytes(1.0, specs)}
    del contents[MANIFEST_FILE]
    files = {name: ref_of_bytes(content) for name, content in contents.items()}
    manifest = replace(made.manifest, files=files)
    return signed(Bundle(manifest, {MANIFEST_FILE: manifest.to_bytes(), **contents}))


def trained(device: str, round_: int, before: Vector) -> Vector:
    """Compute a device's model from a global one: deterministic, and different for every device, round and model."""
    seed = int.from_bytes(hashlib.sha256(f"{device}/{round_}".encode()).digest()[:8], "big")
    step = np.random.default_rng(seed).normal(size=before.size)
    return np.asarray(0.75 * before + step, dtype=np.float32)


def expected(rounds: int, bundle: Bundle, samples: Mapping[str, int]) -> Vector:
    """Compute the last global model with numpy: each device counts once in each round."""
    model: Vector = np.ones(model_size(bundle.manifest.tensors), dtype=np.float32)
    for round_ in range(1, rounds + 1):
        updates = [trained(device, round_, model).astype(np.float64) for device in samples]
        model = np.average(updates, axis=0, weights=list(samples.values())).astype(np.float32)
    return model


@dataclass
class Coordinators:
    """One coordinator after another on one state directory, always on the same ports."""

    tmp: Path
    ports: Sequence[int] = field(default_factory=lambda: free_ports(2))
    program: Sequence[str] = (sys.executable, "-m", "tests.faults.program")
    arguments: Sequence[str] = ()  # of `serve`, besides those
    environment: Mapping[str, str] = field(default_factory=dict)
    store: Store | None = None  # the database as a bystander sees it, where it is no file of the state directory
    process: subprocess.Popen[str] | None = None
    ready: dict[str, Any] = field(default_factory=dict)  # as the process printed it

    @property
    def state(self) -> Path:
        return self.tmp / "state"

    @property
    def log(self) -> str:
        return (self.tmp / "log").read_text()

    def launch(self, *faults: Fault, clock: Clock | None = None) -> subprocess.Popen[str]:
        """Start the process, with a wall clock that may be disturbed, without waiting for it."""
        command = [*self.program, "serve", "--state", str(self.state), "--json"]
        command += ["--fleet-port", str(self.ports[0]), "--enrolment-port", str(self.ports[1])]
        command += self.arguments
        environment = ENVIRONMENT | dict(self.environment) | environment_of(faults)
        environment |= {CLOCK: clock} if clock else {}
        with (self.tmp / "log").open("a") as log:
            self.process = ForkedPopen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
            )
        return self.process

    def serve(self, *faults: Fault, clock: Clock | None = None) -> None:
        """Start the process and wait until it serves."""
        process = self.launch(*faults, clock=clock)
        assert process.stdout
        self.ready = json.loads(process.stdout.readline() or "{}")
        assert self.ready, self.log[-2000:]

    def died(self, fault: Fault | None = None) -> None:
        """Wait until the fault kills the process."""
        assert self.process
        assert self.process.wait(PATIENCE) == -signal.SIGKILL, self.log[-2000:]
        assert fault is None or any(line.endswith(fault.message) for line in self.log.splitlines()[-5:])
        self._reap()

    def kill(self) -> None:
        """Kill the process, as a machine's failure would."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self._reap()

    def _reap(self) -> None:
        if self.process and self.process.stdout:
            self.process.stdout.close()
        self.process = None

    def drives(self, run: str) -> bool:
        """Return True once the process drives the run: a killed one's lease has to expire first."""
        assert self.process
        return self.store is None or f"-{self.process.pid}-" in self.store.run_summaries.load()[run].holder

    def operator(self) -> coordinator.OperatorCalls:
        return coordinator.operator(self.state, self.ports[0])

    def start_run(self, name: str, bundle: Bundle, rounds: int, devices: int, **fields: object) -> None:
        """Start a run with every device in every round."""
        settings = coordinator.settings(rounds, minimum_devices=devices, quorum="all", **fields)
        calls = self.operator()
        with calls.channel:
            coordinator.start_run(calls.control, name, bundle, settings, allow_empty=True)

    def run(self, name: str) -> control_pb2.Run:
        calls = self.operator()
        with calls.channel:
            return calls.run(name)

    def rounds(self, name: str) -> list[control_pb2.Round]:
        calls = self.operator()
        with calls.channel:
            return calls.rounds(name)

    def models(self, name: str) -> list[bytes]:
        """Return the files of a run's global models, the initial one first."""
        calls = self.operator()
        with calls.channel:
            blobs = [calls.run(name).initial_model, *(entry.model for entry in calls.rounds(name))]
            return [calls.model(blob) for blob in blobs]

    def finished(self, name: str) -> control_pb2.Run:
        """Wait for the end of a run."""
        if store := self.store:  # whoever watches is cut off when the run changes hands
            until(lambda: store.run(name).status != "running")
        calls = self.operator()
        with calls.channel:
            return [event.run for event in calls.watch(name)][-1]

    def model(self, name: str) -> bytes:
        """Return the newest global model's file."""
        calls = self.operator()
        with calls.channel:
            return calls.model(calls.run(name).model)


class Pace:
    """Pace of devices: by default as fast as possible."""

    def may_train(self, device: str, assignment: Assignment) -> bool:
        """Return True if a device that has fetched its model may train now; polled until it may."""
        return True

    def delivered(self, device: str, assignment: Assignment) -> None:
        """Note that the device has its receipt, possibly again."""


class LightDevice:
    """A device that connects, trains by arithmetic and submits until it is stopped, over any connection."""

    def __init__(self, directory: Path, name: str, samples: int, address: str, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self.name, self.problems, self.receipts = name, list[str](), dict[AttemptId, str]()
        self._directory, self._samples, self._address = directory, samples, address
        self._stopped = threading.Event()
        self._link: FleetConnection | None = None
        self._last: tuple[Assignment, StoredRound] | None = None  # that has its receipt
        self._blobs = BlobDirectory(directory / "blobs")
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        end = time.monotonic() + PATIENCE
        while self._thread.is_alive():  # it may just be opening another link
            if self._link:
                self._link.close()
            self._thread.join(0.1)
            assert time.monotonic() < end, f"{self.name} hangs"

    def _live(self) -> None:
        while not self._stopped.is_set():
            self._link = FleetConnection(self._address, self.name, load_identity(self._directory))
            try:
                self._connect(self._link)
            except (Unavailable, ResourceExhausted):  # both mean: again later
                pass
            except MoonfedError as error:
                if not self._stopped.is_set():
                    self.problems.append(f"{type(error).__name__}: {error}")
            finally:
                self._link.close()
            self._stopped.wait(random.uniform(0.02, 0.1))

    def _connect(self, link: FleetConnection) -> None:
        if self._last:  # what was acknowledged before the connection broke still is, or it was lost
            link.submit(*self._last, self._wanted)
        for reply in link.connect({}, self._samples, seconds=3600.0):
            if reply.HasField("assignment"):
                self._take_part(link, read_assignment(reply.assignment))

    def _take_part(self, link: FleetConnection, assignment: Assignment) -> None:
        before = link.fetch(assignment.blobs["model"], self._blobs, self._wanted)
        while self._wanted() and not self._pace.may_train(self.name, assignment):
            time.sleep(0.002)
        stored = self._train(assignment, before.read_bytes())
        link.submit(assignment, stored, self._wanted)
        sha256 = stored.update.blobs["model"].sha256
        if self.receipts.setdefault(assignment.id, sha256) != sha256:
            self.problems.append(f"{assignment}: two different updates have receipts")
        self._last = assignment, stored
        self._pace.delivered(self.name, assignment)

    def _train(self, assignment: Assignment, before: bytes) -> StoredRound:
        header = 8 + int.from_bytes(before[:8], "little")
        content = before[:header]
        content += trained(self.name, assignment.id.round, np.frombuffer(before[header:], dtype="<f4")).tobytes()
        directory = self._directory / "trained"
        directory.mkdir(exist_ok=True)
        (directory / "model.safetensors").write_bytes(content)
        update = Update(
            manifest=assignment.manifest.sha256,
            seed=assignment.seed,
            assignment=assignment.digest(),
            blobs={"model": BlobRef(hashlib.sha256(content).hexdigest(), len(content))},
            kept={},
            samples=self._samples,
            steps=1,
            metrics={"loss": 1.0 / assignment.id.round},
        )
        return StoredRound(directory, assignment.id.round, assignment.id.attempt, update)

    def _wanted(self) -> bool:
        return not self._stopped.is_set()


def enrol_all(coordinators: Coordinators, names: Sequence[str]) -> None:
    """Enrol devices with these names, in directories of the same names."""
    calls = coordinators.operator()
    with calls.channel:
        token = calls.token(uses=len(names))
    for name in names:
        coordinator.enrol(coordinators.tmp / name, token, name)


@contextmanager
def devices_at(
    coordinators: Coordinators, address: str = "", pace: Pace | None = None, *, tolerated: str = ""
) -> Iterator[list[LightDevice]]:
    """Run all devices of the enrolled fleet, possibly through another address.

    Fails if a device reports a problem that does not match `tolerated`, a regular expression.
    """
    address = address or f"127.0.0.1:{coordinators.ports[0]}"
    devices = [LightDevice(coordinators.tmp / name, name, count, address, pace) for name, count in SAMPLES.items()]
    with ExitStack() as stack:
        for device in devices:
            stack.callback(device.stop)
            device.start()
        yield devices
    problems = [f"{device.name}: {problem}" for device in devices for problem in device.problems]
    problems = [problem for problem in problems if not (tolerated and re.search(tolerated, problem))]
    assert not problems, problems


def whole_run(coordinators: Coordinators, name: str, rounds: int) -> None:
    """Assert that each round of a run that has ended counted each device once, at the first attempt."""
    listed = [(entry.round, entry.attempt, list(entry.counted)) for entry in coordinators.rounds(name)]
    assert listed == [(round_, 1, sorted(SAMPLES)) for round_ in range(1, rounds + 1)], listed


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
