"""Releases and deployments through both clients."""

from __future__ import annotations

import pandas as pd
import pytest

from moonfed.client import Coordinator
from moonfed.errors import NotFound, WrongState
from tests.client.conftest import Fleet
from tests.support.release_fleet import create, signed_release


@pytest.fixture(scope="module")
def released(fleet: Fleet, client: Coordinator) -> str:
    """Two versions of a release of a stopped run."""
    run = client.start(fleet.path, minimum_devices=50).run
    client.stop(run)
    calls = fleet.coordinators.operator()
    with calls.channel:
        for version in (1, 2):
            create(calls, signed_release(run, fleet.bundle, version, name=run))
    return run


def test_releases_are_a_table(client: Coordinator, released: str) -> None:
    table = pd.DataFrame(client.releases(released))
    assert list(table["version"]) == [1, 2]
    assert set(table["run"]) == {released}
    assert {found.name for found in client.releases()} >= {released}
    assert client.release(released).version == 2
    assert client.release(released, version=1).variants.keys() == {"float32", "int8"}
    with pytest.raises(NotFound, match="nothing"):
        client.release("nothing")


def test_a_deployment_is_widened_paused_resumed_and_rolled_back(client: Coordinator, released: str) -> None:
    first = client.deploy(released, 1, percent=30, max_drop=2.0)
    assert (first.number, first.version, first.status, first.chosen) == (1, 1, "active", 1)
    assert client.widen(released, percent=60).chosen == 2
    assert client.pause_deployment(released).status == "paused"
    assert client.resume_deployment(released).status == "active"
    assert client.deploy(released, 2).number == 2
    devices = pd.DataFrame(client.deployed_devices(released))
    assert set(devices["version"]) == {2}
    assert client.roll_back(released).status == "rolled-back"
    assert [found.status for found in client.deployments(released)] == ["active", "rolled-back"]
    assert sum(found.deployment == 1 for found in client.deployed_devices(released)) == 2
    assert client.roll_back(released).number == 1
    with pytest.raises(WrongState, match="roll"):
        client.roll_back(released)
    assert released in {found.name for found in client.deployments()}
