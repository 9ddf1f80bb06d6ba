"""Files as this release writes them, which later releases must read: `python -m tools.first_release`.

Real programs on loopback write them: an engineer's bundle, a model repository, and the state of a device that has
trained with tensors of its own, has installed a release, and was then cut off in the middle of another run. Each
signature lasts a century. All keys are for tests.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from moonfed.blobs.store import ref_of_file
from moonfed.bundle.manifest import OWN_FILE, PERSONAL
from moonfed.client import Coordinator
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.experiments.datasets import load_dataset
from moonfed.files import new_directory
from moonfed.sandbox.policy import available_level
from moonfed.signing.key_files import KEYS_VARIABLE
from moonfed.version import RELEASE

OUTPUT = Path("tests/compatibility/first_release")
DEVICE, MODEL = "cam-1", "digits"
CENTURY = "36500"  # days
PATIENCE = 120.0  # seconds
SAMPLES = 5
NETWORK = """from torch import nn


def build(shape, classes):
    encoder = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
    return encoder, nn.Identity(), nn.Linear(8, classes)
"""
README = f"""# Files of moonfed {RELEASE}

Later releases must read what is here. `python -m tools.first_release` wrote it with real programs, and
then `python -m tests.compatibility.coordinator_state` the state of coordinators.

| path | content |
| --- | --- |
| `coordinator/` | a coordinator's state directory, stopped during a run |
| `postgresql.sql` | the database of another one, as `pg_dump` writes it |
| `bundle/` | a signed bundle without personal tensors |
| `device/` | a device's state: identity, trust, an installed release, its own tensors of two runs |
| `release/` | the manifest of that release, with its signature |
| `repository/` | a model for servers, of the bundle |
| `trust.json` | the engineer's trust file |
| `samples.npz`, `expected.json` | inputs, and what the programs said |

**These keys are for tests.** They were made for these files, and nothing trusts them.
"""


def main() -> None:
    """Replace the committed files."""
    with TemporaryDirectory() as name:
        work = Path(name)
        with environment({KEYS_VARIABLE: str(work / "keys"), "PYTHONPATH": str(work)}), new_directory(OUTPUT) as made:
            (work / "tiny_network.py").write_text(NETWORK)
            _write_data(work, made)
            run("moonfed-export", "keys", "create")
            shutil.copyfile(work / "keys" / "trust.json", made / "trust.json")
            _bundle(made / "bundle")
            _bundle(work / "personal", "--personal", "head")
            with ChildProcesses(work / "logs") as programs:
                _record(_Fleet(programs, work), made)
            (made / "README.md").write_text(README)
    print(f"{OUTPUT} has the files of moonfed {RELEASE}")


def _write_data(work: Path, made: Path) -> None:
    """Write a device's samples and test samples, and some of the latter for good."""
    digits = load_dataset("digits", None)
    for name, part in (("train", digits.train), ("test", digits.test)):
        np.savez(work / f"{name}.npz", inputs=np.asarray(part.inputs)[:200], labels=np.asarray(part.targets)[:200])
    np.savez_compressed(made / "samples.npz", inputs=np.asarray(digits.test.inputs)[:SAMPLES])


def _bundle(output: Path, *options: str) -> None:
    run("moonfed-export", "bundle", "--model", "tiny_network:build", "--input", "8x8x1", "--classes", "10",
        "--set", "batch_size=20", "--set", "epochs=5", "--set", "learning_rate=0.1", "--name", output.name, *options,
        "--expires-days", CENTURY, "--output", str(output))  # fmt: skip


class _Fleet:
    """A coordinator and one device."""

    def __init__(self, programs: ChildProcesses, work: Path) -> None:
        self.work, self.state = work, work / DEVICE
        self._programs = programs
        self.operator = ("--identity", str(work / "coordinator" / "operator"))
        programs.start("coordinator", "moonfed-coordinator", "serve", "--state", str(work / "coordinator"), "--json",
                       "--fleet-port", "0", "--enrolment-port", "0")  # fmt: skip
        programs.first_line("coordinator")
        token = json.loads(run("moonfed-coordinator", "token", "create", *self.operator, "--json"))["token"]
        run("moonfed-client", "enrol", token, "--name", DEVICE, "--state", str(self.state))

    def start_device(self) -> None:
        """Start the device; it holds out samples, so that it compares releases."""
        self._programs.start("device", "moonfed-client", "run", "--data", str(self.work / "train.npz"), "--state",
                             str(self.state), "--threads", "1", "--holdout", "0.2", "--sandbox", available_level(),
                             "--label", "site=berlin")  # fmt: skip

    def stop_device(self) -> None:
        """Stop the device as a service is stopped."""
        self._programs.programs["device"].terminate()
        self._programs.programs["device"].wait()

    def until_logged(self, text: str) -> None:
        """Wait until the device has logged something."""
        until(lambda: text in (self._programs.logs / "device.log").read_text(), f"the device never said {text!r}")


def _record(fleet: _Fleet, made: Path) -> None:
    with Coordinator(fleet.work / "coordinator" / "operator") as coordinator:
        fleet.start_device()
        for bundle, name in ((made / "bundle", "plain"), (fleet.work / "personal", "personal")):
            coordinator.start(bundle, name=name, rounds=2, minimum_devices=1, cohort="all")
            fleet.until_logged(f"run {name} has ended")
        test, century = ("--data", str(fleet.work / "test.npz")), ("--expires-days", CENTURY)
        run("moonfed-export", "repository", "plain", *test, "--name", MODEL, "--output", str(made / "repository"),
            *fleet.operator)  # fmt: skip
        run("moonfed-export", "release", "create", "personal", *test, "--name", MODEL, *century, *fleet.operator)
        coordinator.deploy(MODEL, 1)
        fleet.until_logged(f"version 1 of model {MODEL}: installed")
        release = coordinator.release(MODEL)
        (made / "release").mkdir()
        (made / "release" / "manifest.json").write_bytes(coordinator.connection.fetch(release.manifest))
        (made / "release" / "signature.json").write_bytes(coordinator.connection.fetch(release.signature))
        coordinator.start(fleet.work / "personal", name="unfinished", rounds=100, minimum_devices=1, cohort="all")
        until(lambda: coordinator.run("unfinished").round >= 2, "the run never came to its second round")
        fleet.stop_device()
    samples = str(made / "samples.npz")
    repository = str(made / "repository" / MODEL / "2" / "model.onnx")
    expected = {
        "release": RELEASE,
        "device": DEVICE,
        "address": read_identity(fleet.state).address,
        "personal": {
            str(file.relative_to(fleet.state)): ref_of_file(file).sha256
            for file in sorted(fleet.state.rglob("*.safetensors"))
            if file.name in (OWN_FILE, f"{PERSONAL}.safetensors")
        },
        "predictions": json.loads(run("moonfed-client", "predict", samples, "--state", str(fleet.state), "--json")),
        "served": json.loads(run("moonfed-export", "predict", samples, "--file", repository, "--json")),
    }
    (made / "expected.json").write_text(json.dumps(expected) + "\n")
    shutil.copytree(fleet.state, made / "device", symlinks=True)


def until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition holds; end the program with a sentence if it does not."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(otherwise)
        time.sleep(0.05)


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables of this process, and so of its programs, for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    main()
