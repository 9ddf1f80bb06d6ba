"""Footprint of a device apart from training: memory of the agent, memory of the worker's code, start-up time.

Uses a real coordinator and a real device on this machine, over TLS, so it needs more than a device's dependencies.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure, Tables, progress
from moonfed.sandbox.policy import available_level

if TYPE_CHECKING:
    from moonfed.experiments.child_processes import ChildProcesses

PARENT = Figure(name="an idle, connected device after two rounds, the parent alone", unit="MB", at_most=60)
CHILD = Figure(name="the training child above bare torch", unit="MB", at_most=30)
START = Figure(name="client start to connected", unit="s", at_most=2)
NEEDED = ("sqlalchemy", "cryptography", "onnx")
DEVICE, RUN = "device", "benchmark"
SAMPLES = 640
TIMEOUT, SETTLE = 120.0, 3.0  # seconds: of every wait; for a device's work after a run, such as fetching the model
POLL = 0.005  # seconds between two checks of the log

# Returns freed memory to the system first; otherwise the figure would include what the allocator retains.
RESIDENT_SET = """
import ctypes, gc, pathlib
gc.collect()
getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)
print(next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")))
"""
TORCH = "import numpy, torch"
# All that the child imports before it has a plan and data.
CHILDS_OWN = f"{TORCH}\nimport moonfed.sandbox.sandboxed, moonfed.edge_client.worker.trainer"


def measure_footprint(starts: int = 5) -> Tables:
    reason = _reason()
    if reason:
        progress(f"footprint: skipped, {reason}")
        yield [replace(figure, reason=reason) for figure in (PARENT, CHILD, START)]
        return
    progress("footprint: a coordinator, a device, two rounds")
    with tempfile.TemporaryDirectory() as directory:
        started, parent = _measure_device(Path(directory), starts)
    yield [
        replace(PARENT, value=parent),
        replace(CHILD, value=statistics.median(_imported(CHILDS_OWN) - _imported(TORCH) for _ in range(starts))),
        replace(START, value=statistics.median(started)),
    ]


def _reason() -> str:
    """Return why this machine cannot measure the footprint, or an empty string."""
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        return f"{missing[0]} is not installed"
    if not Path("/proc/self/status").is_file():
        return "this system does not report a process's resident set"
    return "" if Path(sys.executable).with_name("moonfed-coordinator").is_file() else "moonfed is not installed"


def _imported(code: str) -> float:
    """Return the resident MB of a new process after some imports."""
    done = subprocess.run([sys.executable, "-c", code + RESIDENT_SET], check=True, stdout=subprocess.PIPE, text=True)
    return _megabytes(done.stdout)


def _megabytes(line: str) -> float:
    return int(line.split()[1]) * 1024 / 1e6  # "VmRSS:  1234 kB"


@dataclass(frozen=True, slots=True)
class _Installation:
    """A coordinator and one enrolled device."""

    directory: Path
    fleet: ChildProcesses

    @property
    def state(self) -> Path:
        return self.directory / "device"

    @property
    def operator(self) -> Path:
        return self.directory / "coordinator" / "operator"


def _measure_device(directory: Path, starts: int) -> tuple[list[float], float]:
    """Return the seconds of each start, and the parent's resident MB after a run of two rounds."""
    from moonfed.experiments.child_processes import ChildProcesses

    with ChildProcesses(directory / "logs") as fleet:
        installation = _Installation(directory, fleet)
        _prepare(installation)
        started = []
        for number in range(starts):
            if number:
                fleet.programs[DEVICE].terminate()
                fleet.programs[DEVICE].wait()
            started.append(_start_device(installation))
        _train(installation)
        status = Path(f"/proc/{fleet.programs[DEVICE].pid}/status").read_text()
        return started, _megabytes(next(line for line in status.splitlines() if line.startswith("VmRSS:")))


def _prepare(installation: _Installation) -> None:
    from moonfed.experiments.child_processes import run

    operator = ("--identity", str(installation.operator))
    installation.fleet.start(
        *("coordinator", "moonfed-coordinator", "serve", "--state", str(installation.directory / "coordinator")),
        *("--fleet-port", "0", "--enrolment-port", "0", "--json"),
    )
    installation.fleet.first_line("coordinator")
    token = json.loads(run("moonfed-coordinator", "token", "create", *operator, "--json"))["token"]
    run("moonfed-client", "enrol", token, "--name", DEVICE, "--state", str(installation.state))
    run(
        *("moonfed-export", "bundle", "--model", "cnn", "--input", "32x32x3", "--classes", "10", "--method", "moon"),
        *("--set", "epochs=1", "--output", str(installation.directory / "bundle")),
    )
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (SAMPLES, 32, 32, 3), dtype=np.uint8)
    np.savez(installation.directory / "data.npz", inputs=inputs, labels=np.arange(SAMPLES) % 10)


def _start_device(installation: _Installation) -> float:
    """Start the device; return the seconds until it logs that it is connected."""
    began = time.perf_counter()
    device = installation.fleet.start(
        *(DEVICE, "moonfed-client", "run", "--data", str(installation.directory / "data.npz")),
        *("--state", str(installation.state), "--sandbox", available_level()),
    )
    log = installation.fleet.logs / f"{DEVICE}.log"
    while "connected to the coordinator" not in log.read_text():
        if device.poll() is not None or time.perf_counter() - began > TIMEOUT:
            raise RuntimeError(f"the device does not connect: {installation.fleet.last_log_line(DEVICE)}")
        time.sleep(POLL)
    return time.perf_counter() - began


def _train(installation: _Installation) -> None:
    """Complete a run of two rounds, and wait for the device's work after it."""
    from moonfed.experiments.child_processes import run
    from moonfed.transport.client import open_channel
    from moonfed.transport.identity import load_identity
    from moonfed.v1 import control_pb2
    from moonfed.v1.control_pb2_grpc import ControlStub

    run(
        *("moonfed-coordinator", "run", "start", str(installation.directory / "bundle"), "--name", RUN),
        *("--identity", str(installation.operator), "--rounds", "2", "--minimum-devices", "1", "--cohort", "all"),
        *("--quorum", "100%"),
    )
    identity = load_identity(installation.operator)
    with open_channel(identity.address, identity) as channel:
        control, deadline = ControlStub(channel), time.monotonic() + TIMEOUT
        while control.GetRun(control_pb2.GetRunRequest(run=RUN)).status != "finished":
            if time.monotonic() > deadline:
                raise RuntimeError(f"the run does not finish: {installation.fleet.last_log_line(DEVICE)}")
            time.sleep(0.1)
    time.sleep(SETTLE)
