"""A rolling upgrade: coordinators first. Devices of the previous minor version of the contract go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from moonfed.v1 import control_pb2, fleet_pb2
from moonfed.version import CONTRACT_VERSION
from tests.coordinator.conftest import fleet_in
from tests.support.coordinator import model_bytes, model_values
from tests.support.postgresql import Server

PREVIOUS = "1.2"


def said(message: fleet_pb2.SubmitHeader) -> set[str]:
    """The fields of a message that are on the wire."""
    return {descriptor.name for descriptor, _ in message.ListFields()}


def test_a_device_of_the_previous_version_takes_part(
    postgresql_server: Server, tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    assert CONTRACT_VERSION == "1.3", "of which 1.2 is the previous one"
    with fleet_in(tmp_path, database=postgresql_server.new_database()) as fleet:
        device = fleet.device("old")
        attending = device.attend(version=PREVIOUS)
        fleet.start("run", rounds=2)
        for round_ in (1, 2):
            work = attending.assignment()
            assert work.round == round_
            assert {work.downlink_encoding, work.uplink_encoding} <= {"", "float32"}, "which is what it does anyway"
            content = model_bytes(float(round_))
            assert "encoding" not in said(device.header(work, content))
            assert device.submit(work, content)[-1].receipt.round == round_
        until(lambda: fleet.operator.run("run").status == control_pb2.RUN_STATUS_FINISHED)
        assert model_values(fleet.operator.model(fleet.operator.run("run").model))[0] == 2.0


def test_it_is_left_out_by_name_of_a_run_that_needs_more(postgresql_server: Server, tmp_path: Path) -> None:
    with fleet_in(tmp_path, database=postgresql_server.new_database()) as fleet:
        attending = fleet.device("old").attend(version=PREVIOUS)
        fleet.start("small", uplink_encoding="int8")
        assert "left out: old (without the encoding int8)" in fleet.operator.run("small").waiting
        fleet.start("plain")
        assert attending.assignment().run == "plain"
