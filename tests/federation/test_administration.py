"""Real programs: a revoked device stops, returns on a new board, and a renamed one goes on, all in one run."""

from __future__ import annotations

import json
import shutil
import time
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
    last = federation.fleet.last_log_line("cam-1")
    assert last.startswith(f"moonfed-client: the certificate {serial} of device 'cam-1' was revoked")
    assert last.endswith("(docs: errors/untrusted)")
    until_counted(federation, ["cam-2"])

    shutil.rmtree(federation.directory / "cam-1")  # the board is flashed
    token = federation.directory / "token"
    administer(federation, "token", "create", "--device", "cam-1", "--output", str(token))
    run("moonfed-client", "enrol", str(token), "--state", str(federation.directory / "cam-1"))
    federation.start_device("cam-1")
    until_counted(federation, ["cam-1", "cam-2"])

    administer(federation, "device", "rename", "cam-2", "gate")
    until_counted(federation, ["cam-1", "gate"])
    assert "from cam-2 to gate" in federation.log("cam-2")
    assert federation.fleet.programs["cam-2"].poll() is None, "by itself"


def test_a_copied_state_directory_is_reported_and_a_restarted_device_is_not(federation: Federation) -> None:
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    shutil.copytree(federation.directory / "cam-1", federation.directory / "cam-3")
    for name in ("cam-1", "cam-2", "cam-3"):
        federation.start_device(name)
    for _ in range(3):
        federation.until_online(2)
        with federation.fleet.programs.pop("cam-2") as device:
            device.terminate()
            device.wait(PATIENCE)
        federation.start_device("cam-2")

    def shared() -> dict[str, list[str]]:
        found = json.loads(administer(federation, "device", "list", "--json"))
        return {device["device"]: device["shared_by"] for device in found}

    deadline = time.monotonic() + PATIENCE
    while len(shared()["cam-1"]) < 2:
        assert time.monotonic() < deadline, federation.log("coordinator")
        time.sleep(0.2)
    assert shared()["cam-2"] == []
    assert "several machines use the identity of cam-1" in federation.log("coordinator")
    assert "identity of cam-2" not in federation.log("coordinator")
    remedy = "moonfed-coordinator device revoke cam-1"
    for words in (("list",), ("show", "cam-1")):
        assert remedy in " ".join(administer(federation, "device", *words).split()), words
    assert remedy not in administer(federation, "device", "show", "cam-2")
    administer(federation, "device", "revoke", "cam-1")
    assert shared()["cam-1"] == []
