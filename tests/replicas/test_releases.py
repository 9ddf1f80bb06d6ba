"""A release goes to a tenth of 50 devices, to all, and back, while coordinators and devices are killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moonfed.errors import Unavailable
from moonfed.transport.identity import load_identity
from moonfed.v1 import control_pb2
from tests.faults.fleet import Coordinators, bundle_of
from tests.replicas.pair import two_replicas
from tests.support.coordinator import ask
from tests.support.postgresql import Server
from tests.support.release_fleet import (
    Installer,
    connected,
    create,
    deploy,
    signed_release,
    states,
    stop_all,
    stopped_run,
)
from tests.support.releases import NAME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("forked_programs")]
BUNDLE = bundle_of(1000)
FLEET = [f"cam-{number:02}" for number in range(50)]


@pytest.fixture
def two_coordinators(
    postgresql_server: Server, store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Coordinators]]:
    tmp_path = tmp_path_factory.mktemp("releases")
    with two_replicas(tmp_path, postgresql_server.new_database(), store_url, FLEET) as replicas:
        yield replicas


@pytest.fixture
def fleet(two_coordinators: list[Coordinators]) -> Iterator[list[Installer]]:
    """Fifty devices, half of them at each replica."""
    first, second = two_coordinators
    with ExitStack() as stack:
        devices = []
        for number, name in enumerate(FLEET):
            replica = (first, second)[number % 2]
            identity = load_identity(first.tmp / name)
            devices.append(Installer(connected(stack, identity, name, replica.ports[0])))
        stack.callback(stop_all, devices)
        for device in devices:
            device.start()
        yield devices
        assert [problem for device in devices for problem in device.problems] == []


def restart(replica: Coordinators) -> None:
    replica.kill()
    replica.serve()


def until(replica: Coordinators, expected: dict[str, int], number: int) -> None:
    """Wait until a deployment's devices are in these states, as a replica sees them."""
    _wait(lambda: _states(replica, number) == expected)


def _states(replica: Coordinators, number: int) -> dict[str, int]:
    calls = replica.operator()
    with calls.channel:
        try:
            return states(calls, number)
        except Unavailable:
            return {}


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)


def versions(fleet: list[Installer]) -> dict[str, int]:
    return {device.device.name: device.has.version for device in fleet}


def test_a_release_is_deployed_widened_and_rolled_back(
    two_coordinators: list[Coordinators], fleet: list[Installer]
) -> None:
    first, second = two_coordinators
    first.start_run("run", BUNDLE, 1, len(FLEET) + 1)
    calls = first.operator()
    with calls.channel:
        stopped_run(calls, "run")
        for version in (1, 2):
            create(calls, signed_release("run", BUNDLE, version))
        deploy(calls, 1)
        _wait(lambda: set(versions(fleet).values()) == {1})
        until(second, {"installed": 50}, 1)

        assert deploy(calls, 2, percent=10).chosen == 5
    first.kill()  # right after it was recorded: its devices' targets are unchanged until it is back
    for device in fleet[::7]:
        device.stop()
    first.serve()
    for device in fleet[::7]:
        device.start()
    until(second, {"installed": 5}, 2)
    chosen = {name for name, version in versions(fleet).items() if version == 2}
    assert len(chosen) == 5
    until(first, {"installed": 45, "superseded": 5}, 1)

    calls = second.operator()
    with calls.channel:
        widened = ask(calls.control.WidenDeployment, control_pb2.WidenDeploymentRequest(name=NAME, percent=100))
        assert (widened.chosen, widened.matching) == (50, 50)
    for device in fleet[::5]:
        device.stop()
    restart(second)
    for device in fleet[::5]:
        device.start()
    until(first, {"installed": 50}, 2)
    assert chosen <= {name for name, version in versions(fleet).items() if version == 2}

    calls = first.operator()
    with calls.channel:
        ask(calls.control.RollBackDeployment, control_pb2.RollBackDeploymentRequest(name=NAME, number=2))
    restart(first)
    for device in fleet[::9]:
        device.stop()
        device.start()
    until(second, {"returned": 50}, 2)
    until(first, {"installed": 50}, 1)
    assert set(versions(fleet).values()) == {1}
    for device in fleet:
        assert device.history == [1, 2, 1], device.device.name
