"""Write the state of coordinators as this release leaves it, which later releases migrate.

For tests: a state directory with SQLite, and PostgreSQL's dump of the same. Each has run a fleet of three devices
through training, a private run, a release and its deployment, and was stopped during another run. The keys are not
secret.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support import postgresql

TARGET = Path(__file__).parent / "first_release" / "coordinator"
BIN = Path(sys.executable).parent
DEVICES = ("cam-1", "cam-2", "cam-3")
NETWORK = """
from torch import nn

def small(shape, classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten()), nn.Identity(), nn.Linear(16, classes)
"""


class Fleet:
    """A coordinator with devices, as processes in a directory."""

    def __init__(self, directory: Path, stack: ExitStack, database: str = "") -> None:
        self.directory, self._stack, self._database = directory, stack, database
        self._environment = os.environ | {"XDG_CONFIG_HOME": str(directory / "config")}

    def serve(self) -> subprocess.Popen[str]:
        """Start the coordinator."""
        options = ["--database", self._database] if self._database else []
        (self.directory / "secret").write_text("b2YgYSByZWNlaXZlciB0aGF0IG5ldmVyIGFuc3dlcnM=")
        options += ["--webhook", "http://127.0.0.1:9/", "--webhook-secret", "secret"]
        ports = ("--fleet-port", "0", "--enrolment-port", "0")
        process = self._start("moonfed-coordinator", "serve", "--state", "state", "--json", *ports, *options)
        assert process.stdout
        assert process.stdout.readline(), (self.directory / "log").read_text()
        return process

    def run_devices(self) -> list[subprocess.Popen[str]]:
        """Start the devices."""
        return [
            self._start(
                "moonfed-client", "run", "--data", f"parts/device-{number}.npz", "--state", name, "--threads", "1",
                "--holdout", "0.2",
            )
            for number, name in enumerate(DEVICES, 1)
        ]  # fmt: skip

    def call(self, program: str, *words: str) -> str:
        """Run a command to its end; return its output."""
        done = subprocess.run(
            [BIN / program, *words], cwd=self.directory, env=self._environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def operate(self, *words: str) -> str:
        """Run a command of the state directory's own operator."""
        return self.call("moonfed-coordinator", *words, "--identity", "state/operator")

    def document(self, *words: str) -> Any:
        """Return the JSON of such a command."""
        return json.loads(self.operate(*words, "--json"))

    def _start(self, program: str, *words: str) -> subprocess.Popen[str]:
        log = self._stack.enter_context((self.directory / "log").open("a"))
        process = subprocess.Popen(
            [BIN / program, *words], cwd=self.directory, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
        self._stack.callback(end, process)
        return process


def end(process: subprocess.Popen[str]) -> None:
    """Stop a program as an operator does."""
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.2)


def live(fleet: Fleet) -> None:
    """Use everything that leaves rows in the database, and stop during a run."""
    coordinator = fleet.serve()
    fleet.call("moonfed-experiments", "partition", "digits", "--devices", "3", "--beta", "1", "--output", "parts")
    (fleet.directory / "network.py").write_text(NETWORK)
    network = ("--model", "network:small", "--input", "8x8x1", "--classes", "10")
    fleet.call("moonfed-export", "bundle", *network, "--method", "fedavg", "--output", "bundle")
    fleet.operate("token", "create", "--uses", "4", "--output", "token")
    for name in (*DEVICES, "cam-4"):
        fleet.call("moonfed-client", "enrol", "token", "--name", name, "--state", name)
    for name in ("ann", "bob"):
        fleet.operate("operator", "create", name, "--role", "engineer", "--output", name)
    fleet.operate("operator", "revoke", "bob")
    fleet.operate("device", "revoke", "cam-4")
    fleet.operate("device", "label", "cam-1", "site=berlin")
    devices = fleet.run_devices()
    fleet.operate("run", "start", "bundle", "--name", "digits", "--rounds", "3", "--minimum-devices", "3")
    wait(lambda: fleet.document("run", "show", "digits")["status"] == "finished")
    private = ("--privacy", "epsilon=8,delta=1e-3", "--clip-norm", "1", "--population", "3", "--cohort", "2")
    fleet.operate("run", "start", "bundle", "--name", "private", *private, "--minimum-devices", "1")
    wait(lambda: fleet.document("run", "show", "private")["status"] != "running")
    evaluation = ("--data", "parts/test.npz", "--identity", "state/operator")
    fleet.call("moonfed-export", "release", "create", "digits", "--name", "digits", *evaluation)
    fleet.operate("release", "deploy", "digits", "--version", "1")
    wait(lambda: "3 installed" in fleet.operate("release", "status", "digits"))
    fleet.operate("run", "evaluate", "digits")
    fleet.operate("run", "start", "bundle", "--name", "open", "--rounds", "50", "--minimum-devices", "3")
    wait(lambda: len(fleet.document("run", "show", "open")["rounds"]) >= 2)
    end(coordinator)
    for device in devices:
        end(device)


@contextmanager
def fleet_in(database: str = "") -> Iterator[tuple[Fleet, Path]]:
    """Yield a fleet in a directory that is then deleted."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        yield Fleet(Path(directory), stack, database), Path(directory)


def main() -> None:
    """Write both."""
    shutil.rmtree(TARGET, ignore_errors=True)
    with fleet_in() as (fleet, directory):
        live(fleet)
        shutil.copytree(directory / "state", TARGET)
    with postgresql.server() as server:
        url = server.new_database()
        with fleet_in(url) as (fleet, _):
            live(fleet)
        dump = subprocess.run(["/usr/bin/env", "pg_dump", "--no-owner", url], check=True, capture_output=True).stdout
        TARGET.with_name("postgresql.sql").write_bytes(dump)


if __name__ == "__main__":
    main()
