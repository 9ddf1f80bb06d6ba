"""Write the state of coordinators as this release leaves it, which later releases migrate.

For tests: a state directory with SQLite, and PostgreSQL's dump of the same. Each has run a fleet of three devices
through training, a private run, a release and its deployment, and was stopped during another run. The keys are not
secret.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.signing.key_files import KEYS_VARIABLE
from tests.compatibility.first_release_files import FIRST_RELEASE
from tests.support import postgresql
from tools.first_release import environment, until

DEVICES = ("cam-1", "cam-2", "cam-3")
OPERATOR = ("--identity", "state/operator")
NETWORK = """
from torch import nn

def small(shape, classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten()), nn.Identity(), nn.Linear(16, classes)
"""
_RESTRICTION = re.compile(rb"^\\(un)?restrict .*\n", re.MULTILINE)  # which psql of before August 2025 does not know


def operate(*words: str) -> str:
    """Run a command of the state directory's own operator."""
    return run("moonfed-coordinator", *words, *OPERATOR)


def shown(name: str) -> dict[str, Any]:
    """Return what is known about a run."""
    found: dict[str, Any] = json.loads(operate("run", "show", name, "--json"))
    return found


def live(programs: ChildProcesses, *options: str) -> None:
    """Use everything that leaves rows in the database, and stop during a run."""
    Path("secret").write_text("b2YgYSByZWNlaXZlciB0aGF0IG5ldmVyIGFuc3dlcnM=")
    webhook = ("--webhook", "http://127.0.0.1:9/", "--webhook-secret", "secret")
    ports = ("--fleet-port", "0", "--enrolment-port", "0")
    serve = ("moonfed-coordinator", "serve", "--state", "state", "--json", *ports, *webhook, *options)
    coordinator = programs.start("coordinator", *serve)
    programs.first_line("coordinator")
    run("moonfed-experiments", "partition", "digits", "--devices", "3", "--beta", "1", "--output", "parts")
    Path("network.py").write_text(NETWORK)
    network = ("--model", "network:small", "--input", "8x8x1", "--classes", "10")
    run("moonfed-export", "bundle", *network, "--method", "fedavg", "--output", "bundle")
    operate("token", "create", "--uses", "4", "--output", "token")
    for name in (*DEVICES, "cam-4"):
        run("moonfed-client", "enrol", "token", "--name", name, "--state", name)
    for name in ("ann", "bob"):
        operate("operator", "create", name, "--role", "engineer", "--output", name)
    operate("operator", "revoke", "bob")
    operate("device", "revoke", "cam-4")
    operate("device", "label", "cam-1", "site=berlin")
    for number, name in enumerate(DEVICES, 1):
        data = ("--data", f"parts/device-{number}.npz", "--holdout", "0.2")
        programs.start(name, "moonfed-client", "run", *data, "--state", name, "--threads", "1")
    operate("run", "start", "bundle", "--name", "digits", "--rounds", "3", "--minimum-devices", "3")
    until(lambda: shown("digits")["status"] == "finished", "the run never finished")
    private = ("--privacy", "epsilon=8,delta=1e-3", "--clip-norm", "1", "--population", "3", "--cohort", "2")
    operate("run", "start", "bundle", "--name", "private", *private, "--minimum-devices", "1")
    until(lambda: shown("private")["status"] != "running", "the private run never ended")
    run("moonfed-export", "release", "create", "digits", "--name", "digits", "--data", "parts/test.npz", *OPERATOR)
    operate("release", "deploy", "digits", "--version", "1")
    until(lambda: "3 installed" in operate("release", "status", "digits"), "the release was never installed")
    operate("run", "evaluate", "digits")
    operate("run", "start", "bundle", "--name", "open", "--rounds", "50", "--minimum-devices", "3")
    until(lambda: len(shown("open")["rounds"]) >= 2, "the open run had no two rounds")
    coordinator.terminate()
    coordinator.wait()


@contextmanager
def lived(*options: str) -> Iterator[None]:
    """Change to a new directory, in which a fleet has lived, `options`: of its coordinator."""
    with TemporaryDirectory() as name, chdir(name), environment({KEYS_VARIABLE: f"{name}/keys"}):
        with ChildProcesses(Path(name) / "logs") as programs:
            live(programs, *options)
        yield


def main() -> None:
    """Write both."""
    shutil.rmtree(FIRST_RELEASE / "coordinator", ignore_errors=True)
    with lived():
        shutil.copytree("state", FIRST_RELEASE / "coordinator")
    with postgresql.server() as server:
        url = server.new_database()
        with lived("--database", url):
            command = ["pg_dump", "--no-owner", url]
            dump = subprocess.run(command, check=True, capture_output=True).stdout
    (FIRST_RELEASE / "postgresql.sql").write_bytes(_RESTRICTION.sub(b"", dump))


if __name__ == "__main__":
    main()
