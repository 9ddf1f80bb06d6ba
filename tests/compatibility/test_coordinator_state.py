"""The state directory of a coordinator of the first release, which this release goes on using."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moonfed.client import Coordinator
from tests.compatibility.first_release_files import FIRST_RELEASE
from tests.support.coordinator_programs import Programs


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Coordinator]:
    """An operator of a coordinator of this release, on a copy of that state."""
    shutil.copytree(FIRST_RELEASE / "coordinator", tmp_path / "state")
    with ExitStack() as stack:
        programs = Programs(tmp_path, stack)
        programs.serve()
        yield stack.enter_context(Coordinator(programs.state / "operator"))


def test_everything_is_there(operator: Coordinator) -> None:
    runs = {run.run: run.status for run in operator.runs()}
    assert runs == {"digits": "finished", "private": "finished", "open": "running"}
    committed = [(found.round, found.outcomes) for found in operator.rounds("digits") if found.status == "committed"]
    assert committed == [(number, {"counted": 3}) for number in (1, 2, 3)]
    assert {name: values.shape for name, values in operator.weights("digits").items()} == {
        "output_layer.weight": (10, 16),
        "output_layer.bias": (10,),
    }
    devices = {device.device: (device.revoked is not None, device.operator_labels) for device in operator.devices()}
    assert devices == {
        "cam-1": (False, {"site": "berlin"}),
        "cam-2": (False, {}),
        "cam-3": (False, {}),
        "cam-4": (True, {}),
    }
    assert [(token.uses, token.uses_left) for token in operator.tokens()] == [(4, 0)]
    (release,) = operator.releases("digits")
    assert (release.version, release.run) == (1, "digits")
    installed = {device.device: device.state for device in operator.deployed_devices("digits")}
    assert installed == dict.fromkeys(("cam-1", "cam-2", "cam-3"), "installed")
    assert [found.round for found in operator.evaluations("digits")] == [3]
    assert operator.privacy("private").epsilon > 0


def test_its_open_run_goes_on(operator: Coordinator) -> None:
    before = operator.run("open")
    assert before.round >= 2
    assert operator.pause("open").status == "paused"
    assert operator.resume("open").status == "running"
    assert (operator.stop("open").status, operator.run("open").round) == ("stopped", before.round)
