"""Sessions: device descriptions, messages sent once, and superseded sessions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moonfed.assignment import Assignment, RunEnded
from moonfed.blobs import ref_of_bytes
from moonfed.coordinator.devices.sessions import DeviceInfo, Sessions
from moonfed.coordinator.records import AttemptId
from moonfed.errors import InvalidInput, WrongState
from moonfed.training_spec import TrainingSpec
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.support.streams import collect


def device_info(device: str = "cam-1") -> DeviceInfo:
    return DeviceInfo(device=device, contract_version=CONTRACT_VERSION, plan_interfaces=(PLAN_INTERFACE,), platform={})


def assignment(attempt: int) -> Assignment:
    ref = ref_of_bytes(b"")
    return Assignment(
        id=AttemptId(run="r", round=1, attempt=attempt),
        manifest=ref,
        blobs={"model": ref},
        training=TrainingSpec(epochs=1, batch_size=1),
        seed=0,
    )


def test_an_assignment_is_sent_once_in_a_session() -> None:
    async def scenario() -> None:
        sessions = Sessions()
        session = sessions.open(device_info())
        for attempt in (1, 1, 2, 1):
            session.assign(assignment(attempt))
        session.close(WrongState("over"))
        received: list[Assignment] = []
        with pytest.raises(WrongState, match="over"):
            await collect(session.assignments(), received)
        assert [work.id.attempt for work in received] == [1, 2]

    asyncio.run(scenario())


def test_discarding_an_older_session_keeps_the_newer_one() -> None:
    async def scenario() -> None:
        sessions = Sessions()
        old = sessions.open(device_info())
        new = sessions.open(device_info())
        sessions.discard(old)
        assert sessions.find("cam-1") is new
        sessions.discard(new)
        assert sessions.find("cam-1") is None

    asyncio.run(scenario())


def test_a_device_with_too_long_a_description_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="'cam-1' sends a description of 200 words"):
        DeviceInfo(
            device="cam-1",
            contract_version=CONTRACT_VERSION,
            plan_interfaces=(),
            platform={str(number): "" for number in range(100)},
        )


@pytest.mark.parametrize("runs", [("",), ("r" * 129,), ("a\nb",), ("r",) * 65])
def test_a_device_with_too_many_or_invalid_run_names_is_rejected(runs: tuple[str, ...]) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"runs (names ''|names 'r{128}'|names 'a\\nb'|has 65 names); it must be (at most 64|1 to 128)",
    ):
        replace(device_info(), runs=runs)
    assert replace(device_info(), runs=("r" * 128,) * 64).runs


def test_the_end_of_a_run_is_sent_once_in_a_session() -> None:
    async def scenario() -> None:
        session = Sessions().open(device_info())
        for run in ("a", "b", "a"):
            session.notify_ended(RunEnded(run=run))
        session.close(WrongState("over"))
        received: list[Assignment | RunEnded] = []
        with pytest.raises(WrongState, match="over"):
            await collect(session.messages(), received)
        assert received == [RunEnded(run="a"), RunEnded(run="b")]

    asyncio.run(scenario())
