from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from moonfed.bundle.files import Bundle
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.console_process import ConsoleProcess, Page, console_process, log_in
from tests.support.coordinator_programs import Programs
from tests.support.digit_fleet import DigitDevice, digit_devices, digits_bundle, digits_release, evaluate
from tests.support.release_fleet import create, deploy

HOSTILE = "<img src=x onerror=document.title=1>"


@dataclass
class Federation:
    """A coordinator with devices, an ended run `pilot`, two versions of the model `digits`, one of them deployed."""

    fleet: Fleet
    bundle: Bundle
    devices: list[DigitDevice] = field(default_factory=list)

    @property
    def identity(self) -> Path:
        return self.fleet.state / "operator"

    def run(self, name: str) -> control_pb2.Run:
        return self.fleet.operator.run(name)

    def ended(self, name: str) -> None:
        while self.run(name).status == "running":
            time.sleep(0.02)


@pytest.fixture(scope="package")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with fleet_in(tmp_path_factory.mktemp("console")) as fleet:
        found = Federation(fleet, digits_bundle())
        token = fleet.operator.token(uses=20)
        devices = [fleet.device(f"cam-{number}", token) for number in range(4)]
        found.devices = digit_devices(devices, lambda number: {"site": ["berlin", HOSTILE][number % 2]})
        found.devices[1].behave = lambda round_: HOSTILE if round_ == 2 else 0.0
        for device in found.devices:
            device.start()
        quorum = 3
        fleet.start("pilot", 3, found.bundle, quorum=quorum, minimum_devices=4)
        found.ended("pilot")
        evaluate(fleet.operator, "pilot")
        for version in (1, 2):
            create(fleet.operator, digits_release(fleet.operator, "pilot", found.bundle, version, version + 1))
        deploy(fleet.operator, 1, 50.0)
        yield found
        for device in found.devices:
            device.stop()
        assert [device.problems for device in found.devices] == [[]] * len(found.devices)


@pytest.fixture(scope="package")
def console(federation: Federation) -> Iterator[ConsoleProcess]:
    with console_process("--identity", str(federation.identity)) as found:
        yield found


@pytest.fixture(scope="package")
def page(console: ConsoleProcess) -> Page:
    """A page of the admin, logged in by the console's link."""
    return log_in(console, console.token)


@pytest.fixture(scope="package")
def engineer(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    identity = tmp_path_factory.mktemp("identities") / "ed"
    programs = Programs(federation.fleet.tmp, federation.fleet.stack)
    programs.command("operator", "create", "ed", "--role", "engineer", "--output", str(identity))
    return identity
