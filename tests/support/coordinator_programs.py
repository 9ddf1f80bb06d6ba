"""Coordinators as processes on one state directory, and their operator's commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from tests.support import coordinator
from tests.support.coordinator import Device, OperatorCalls

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from moonfed.coordinator.cli.program import main; main()"]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "common"), str(ROOT / "proto")])}


def _environment() -> dict[str, str]:
    """Return the environment of programs, with the directory of keys that the session made."""
    return dict(os.environ) | ENVIRONMENT


@dataclass
class Programs:
    """Coordinators as processes on one state directory, always on the same ports."""

    tmp: Path
    stack: ExitStack
    ports: tuple[int, int] = (0, 0)
    process: subprocess.Popen[str] | None = None
    devices: dict[str, Device] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.tmp / "state"

    @property
    def log(self) -> str:
        return (self.tmp / "log").read_text()

    def serve(self, *options: str) -> dict[str, Any]:
        command = [*PROGRAM, "serve", "--state", str(self.state), "--json", *options]
        command += ["--fleet-port", str(self.ports[0]), "--enrolment-port", str(self.ports[1])]
        with (self.tmp / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment(), start_new_session=True
            )
        self.stack.callback(self.end, self.process)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log
        ready = json.loads(line)
        assert isinstance(ready, dict)
        self.ports = (ready["fleet_port"], ready["enrolment_port"] or 0)
        return ready

    def end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()

    def signal(self, number: int) -> int:
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def operator(self) -> OperatorCalls:
        calls = coordinator.operator(self.state, self.ports[0])
        self.stack.enter_context(calls.channel)
        return calls

    def device(self, name: str) -> Device:
        """Connect a device, enrolling it the first time."""
        if name not in self.devices:
            coordinator.enrol(self.tmp / name, self.operator().token(), name)
        identity = load_identity(self.tmp / name)
        self.devices[name] = Device(name, self.stack.enter_context(transport.open_channel(identity.address, identity)))
        return self.devices[name]

    def command(self, *words: str, code: int = 0, errors: bool = False) -> str:
        """Return the output of an operator's command; its messages on stderr if it is to fail, or if `errors`."""
        identity = (
            ["--identity", str(self.state / "operator")] if words[0] != "serve" and "--insecure" not in words else []
        )
        done = subprocess.run(
            [*PROGRAM, *words, *identity], capture_output=True, text=True, env=_environment(), check=False, timeout=60
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if code or errors else done.stdout
