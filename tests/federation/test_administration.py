"""Real programs: a revoked device stops, returns on a new board, and a renamed one goes on, all in one run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.experiments.child_processes import run
from moonfed.transport.identity import load_identity, read_certificate
from moonfed.v1 import control_pb2

from .conftest import PATIENCE, Federation

pytestmark = pytest.mark.slow

ROUNDS = 100_000


def administer(federation: Federation, *words: str) -> str:
    return run("moonfed-coordinator", *words, *federation.operator)


def until_counted(federation: Federation, names: list[str]) -> None:
    """Wait until another round has counted exactly these devices."""
    after = federation.show("r").round

    def counted(_: control_pb2.Run) -> bool:
        return any(list(entry.counted) == names for entry in federation.rounds("r") if entry.round > after)

    federation.until("r", counted)


def test_a_fleet_is_administered_while_it_trains(federation: Federation, make_bundle: Callable[..., Path]) -> None:
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    for name in ("cam-1", "cam-2"):
        federation.start_device(name)
    federation.until_online(2)
    federation.start_run(
        make_bundle("scaffold", epochs=1), "r", "--rounds", str(ROUNDS), "--quorum", "1", "--heartbeat-timeout", "5"
    )
    until_counted(federation, ["cam-1", "cam-2"])

    administer(federation, "device", "revoke", "cam-1")
    with federation.fleet.programs.pop("cam-1") as revoked:
        assert revoked.wait(PATIENCE) == 5
    serial = read_certificate(load_identity(federation.directory / "cam-1" / "identity").certificate).serial
    assert federation.fleet.last_log_line("cam-1") == (
        f"moonfed-client: the certificate {serial} of device 'cam-1' was revoked by an operator; "
        "the device can return with a join token that an operator creates for it (docs: errors/untrusted)"
    )
    until_counted(federation, ["cam-2"])

    shutil.rmtree(federation.directory / "cam-1")  # the board is flashed
    token = federation.directory / "token"
    administer(federation, "token", "create", "--device", "cam-1", "--output", str(token))
    run("moonfed-client", "enrol", str(token), "--state", str(federation.directory / "cam-1"))
    federation.start_device("cam-1")
    until_counted(federation, ["cam-1", "cam-2"])

    administer(federation, "device", "rename", "cam-2", "gate")
    until_counted(federation, ["cam-1", "gate"])
    assert "an operator renamed this device from cam-2 to gate; continuing under that name" in federation.log("cam-2")
    assert federation.fleet.programs["cam-2"].poll() is None, "by itself"
