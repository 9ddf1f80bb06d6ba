"""Devices' sessions over real TLS: compatibility, and one session per device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from moonfed.coordinator.api.device_api import DeviceApi
from moonfed.coordinator.devices.sessions import DeviceInfo, Sessions
from moonfed.errors import NotFound, VersionMismatch, WrongState
from moonfed.transport.identity import load_identity
from moonfed.v1 import enrolment_pb2
from moonfed.v1.enrolment_pb2_grpc import EnrolmentStub
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask


def test_another_major_version_of_the_contract_is_rejected_with_both_versions(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    with pytest.raises(VersionMismatch, match=f"contract version 9.0; this coordinator uses {CONTRACT_VERSION}"):
        device.connect(version="9.0")
    device.connect(version="1.7").leave()
    credentials = grpc.ssl_channel_credentials(load_identity(fleet.state / "operator").ca)
    address = f"127.0.0.1:{fleet.ports.enrolment}"
    with (
        grpc.secure_channel(address, credentials) as channel,
        pytest.raises(VersionMismatch, match=r"contract version 9\.0"),
    ):
        ask(EnrolmentStub(channel).Enrol, enrolment_pb2.EnrolRequest(device="x", contract_version="9.0"))


def test_a_device_that_cannot_run_the_plan_is_notified_and_not_selected(
    fleet: Fleet, until: Callable[[Callable[[], bool]], None]
) -> None:
    old, current = fleet.device("cam-1"), fleet.device("cam-2")
    session = old.connect(interface="torchscript/0")
    fleet.start()
    with pytest.raises(
        VersionMismatch, match=f"plan interfaces: torchscript/0; the running runs need {PLAN_INTERFACE}"
    ):
        session.next()
    with pytest.raises(VersionMismatch, match="torchscript/0"):
        old.connect(interface="torchscript/0")
    # The run learns a moment later that the device has left.
    waiting = "waiting for 1 more device: 0 eligible, 1 needed"
    until(lambda: fleet.operator.run("run").waiting == waiting)
    current.connect().assignment()
    assert fleet.operator.run("run").open_round.cohort == ["cam-2"]


def test_a_second_session_ends_the_first(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start()
    first = device.connect()
    work = first.assignment()
    second = device.connect()
    with pytest.raises(WrongState, match="has connected again"):
        first.next()
    assert second.assignment() == work
    assert fleet.operator.devices()[0].online


def test_the_runs_of_a_session_that_is_over_are_not_looked_up() -> None:
    """A device that names many runs and reconnects at once would otherwise keep the database busy for everybody."""
    info = DeviceInfo(
        device="cam-1", contract_version=CONTRACT_VERSION, plan_interfaces=(), platform={}, runs=("a", "b", "c")
    )
    sessions, asked = Sessions(), list[str]()

    async def view(run: str) -> None:
        asked.append(run)
        sessions.open(info)  # the device connects again
        raise NotFound(run)

    runs: Any = SimpleNamespace(view=view, served={})
    nothing: Any = None
    api = DeviceApi(
        runs=runs, sessions=sessions, blobs=nothing, access=nothing, registry=nothing, liveness=nothing,
        background=nothing, releases=nothing, evaluations=nothing,
    )  # fmt: skip
    asyncio.run(api._notify_ended(sessions.open(info)))
    assert asked == ["a"]
