"""A federation of real programs on loopback: a coordinator process, device processes, the operator's commands."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.blobs.tensors import Vector, open_model
from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.partition import PartitionSettings, write_partition
from moonfed.sandbox.policy import available_level
from moonfed.transport.client import fetch_blob, from_message, open_channel
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2
from moonfed.v1.control_pb2_grpc import ControlStub
from tests.experiments.conftest import compile_once
from tests.support.forked_process import PATCHES
from tests.support.session_cache import cached

__all__ = ["compile_once"]

PATIENCE = 120.0  # seconds; nothing here should take more than a few

HELD_DATA = """import time
from pathlib import Path

import numpy as np


def load(spec, classes):
    with open({reads!r}, "a") as reads:
        reads.write("x")
    while Path({reads!r}).stat().st_size > int(Path({allowed!r}).read_text()):
        time.sleep(0.05)
    with np.load({source!r}) as arrays:
        return arrays["inputs"], arrays["labels"]
"""


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, split unevenly over three devices."""
    directory = tmp_path_factory.mktemp("parts")
    write_partition(load_dataset("digits", None), PartitionSettings(devices=3, beta=0.5, seed=1), directory)
    return directory


@pytest.fixture(scope="session")
def make_bundle() -> Callable[..., Path]:
    """Build bundles for the digits through the command line, each only once, and their common graph only once."""

    def make(method: str, **hyperparameters: float) -> Path:
        chosen = [word for name, value in sorted(hyperparameters.items()) for word in ("--set", f"{name}={value}")]
        options = ("--projection", "256", "--method", method, "--set", "batch_size=32", *chosen)
        command = ("moonfed-export", "bundle", "--model", "cnn", "--input", "8x8x1", "--classes", "10", *options)
        with mock.patch.dict(os.environ, {PATCHES: "tests.support.shared_graphs"}):
            return cached(" ".join(command).encode(), lambda path: run(*command, "--output", str(path)))

    return make


@dataclass
class Federation:
    """The programs of one test and what an operator would do with them."""

    directory: Path
    parts: Path
    fleet: ChildProcesses
    programs: Path = Path()  # the directory of the programs that are started next; by default, this interpreter's
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.directory / "coordinator"

    @property
    def operator(self) -> tuple[str, ...]:
        return ("--identity", str(self.state / "operator"))

    def program(self, name: str) -> str:
        return str(self.programs / name)

    def serve(self, name: str = "coordinator", *options: str) -> dict[str, Any]:
        """Start the coordinator and return its ports; later starts use the same, so that the devices find it again."""
        ports = ("0", "0")
        kept = self.directory / "ports.json"
        if kept.is_file():
            ports = tuple(json.loads(kept.read_text()))
        self.fleet.start(
            *(name, self.program("moonfed-coordinator"), "serve", "--state", str(self.state), "--json"),
            *("--fleet-port", ports[0], "--enrolment-port", ports[1], *options),
        )
        ready: dict[str, Any] = json.loads(self.fleet.first_line(name))
        kept.write_text(json.dumps([str(ready["fleet_port"]), str(ready["enrolment_port"])]))
        return ready

    def enrol(self, *names: str) -> None:
        words = ("token", "create", "--uses", str(len(names)), *self.operator, "--json")
        token = json.loads(run(self.program("moonfed-coordinator"), *words))["token"]
        for name in names:
            state = str(self.directory / name)
            run(self.program("moonfed-client"), "enrol", token, "--name", name, "--state", state)

    def start_device(self, name: str, *options: str, data: str | None = None) -> None:
        """Start a device with the data of its number (cam-1: device-1.npz); `data`: others, "" for inference only."""
        source = str(self.parts / f"device-{name.split('-')[1]}.npz") if data is None else data
        self.fleet.start(
            *(name, self.program("moonfed-client"), "run", *(("--data", source) if source else ())),
            *("--state", str(self.directory / name)),
            *("--threads", "1", "--sandbox", available_level(), *options),
        )

    def start_device_for(self, rounds: int, name: str, *options: str) -> None:
        """Start a device that starts that many rounds, one at a time, and then waits with its data until `allow`."""
        module = f"part_of_{name.replace('-', '_')}"
        reads, allowed = (self.directory / f"{name}.{what}" for what in ("reads", "allowed"))
        source = self.parts / f"device-{name.split('-')[1]}.npz"
        text = HELD_DATA.format(reads=str(reads), allowed=str(allowed), source=str(source))
        (self.directory / "callables" / f"{module}.py").write_text(text)
        self.allow(rounds, name)
        self.start_device(name, *options, data=f"{module}:load")

    def allow(self, rounds: int, name: str) -> None:
        """Allow a device to start that many rounds in total, after it has checked the run."""
        kept = self.directory / f"{name}.allowed"
        kept.with_suffix(".new").write_text(str(1 + rounds))
        kept.with_suffix(".new").replace(kept)

    def start_run(self, bundle: Path, name: str, *options: str) -> None:
        words = ("run", "start", str(bundle), "--name", name)
        run(self.program("moonfed-coordinator"), *words, *self.operator, *options)

    def show(self, name: str) -> control_pb2.Run:
        identity = load_identity(self.state / "operator")
        with open_channel(identity.address, identity) as channel:
            return ControlStub(channel).GetRun(control_pb2.GetRunRequest(run=name), timeout=10)

    def rounds(self, name: str) -> list[control_pb2.Round]:
        """Return a run's committed and abandoned rounds."""
        identity = load_identity(self.state / "operator")
        with open_channel(identity.address, identity) as channel:
            return list(ControlStub(channel).ListRounds(control_pb2.ListRoundsRequest(run=name), timeout=10))

    def until_online(self, number: int) -> None:
        """Wait until that many devices are online."""
        identity = load_identity(self.state / "operator")
        deadline = time.monotonic() + PATIENCE
        with open_channel(identity.address, identity) as channel:
            control = ControlStub(channel)
            while sum(device.online for device in control.ListDevices(control_pb2.ListDevicesRequest())) < number:
                assert time.monotonic() < deadline, "the devices never came"
                time.sleep(0.1)

    def until(self, name: str, condition: Callable[[control_pb2.Run], bool]) -> control_pb2.Run:
        """Wait for a run to reach a state."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            seen = self.show(name)
            if condition(seen):
                return seen
            time.sleep(0.1)
        raise AssertionError(f"the run did not get there: {seen}")

    def until_finished(self, name: str) -> control_pb2.Run:
        return self.until(name, lambda seen: seen.status == "finished")

    def until_log(self, name: str, text: str) -> None:
        """Wait until a program has logged something."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.log(name):
            assert time.monotonic() < deadline, f"{name} never said {text!r}: {self.log(name)[-2000:]}"
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return (self.fleet.logs / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        """Kill a program and its children with SIGKILL, like a power loss."""
        program = self.fleet.programs.pop(name)
        family = [psutil.Process(program.pid), *psutil.Process(program.pid).children(recursive=True)]
        for process in family:
            os.kill(process.pid, signal.SIGKILL)
        program.wait()
        if program.stdout:
            program.stdout.close()

    def global_model(self, name: str, round_number: int, bundle: Path) -> Vector:
        """Return the global model after a round as a flat vector; round 0 is the initial model."""
        from moonfed.bundle.files import read_bundle
        from moonfed.bundle.manifest import WEIGHTS_FILE

        specs = read_bundle(bundle).manifest.tensors
        if round_number == 0:
            return np.array(open_model(bundle / WEIGHTS_FILE, specs))
        committed = [r for r in self.rounds(name) if r.status == "committed"]
        ref = from_message(committed[round_number - 1].model)
        identity = load_identity(self.state / "operator")
        with open_channel(identity.address, identity) as channel:
            path = fetch_blob(ControlStub(channel).Fetch, ref, BlobDirectory(self.directory / "fetched"))
        return np.array(open_model(path, specs))


@pytest.fixture
def federation(
    tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch, forked_programs: None
) -> Iterator[Federation]:
    (tmp_path / "callables").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "callables"))  # where devices find what gives data
    with ChildProcesses(tmp_path / "logs") as fleet:
        yield Federation(tmp_path, parts, fleet)
