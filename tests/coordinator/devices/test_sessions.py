"""Sessions: device descriptions, messages sent once, and superseded sessions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.devices.sessions import DeviceInfo, Message, RemoteSession, Sessions
from moonfed.coordinator.records import AttemptId
from moonfed.errors import InvalidInput, Unavailable, WrongState
from moonfed.fleet.assignment import Assignment, EligibilityCheck, RunEnded
from moonfed.plan.training_spec import TrainingSpec
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.support.refusals import refused
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
    with refused(InvalidInput, "device", "cam-1"):
        DeviceInfo(
            device="cam-1",
            contract_version=CONTRACT_VERSION,
            plan_interfaces=(),
            platform={str(number): "" for number in range(100)},
        )


@pytest.mark.parametrize("runs", [("",), ("r" * 129,), ("a\nb",), ("r",) * 65])
def test_a_device_with_too_many_or_invalid_run_names_is_rejected(runs: tuple[str, ...]) -> None:
    with refused(InvalidInput, "runs"):
        replace(device_info(), runs=runs)
    assert replace(device_info(), runs=("r" * 128,) * 64).runs


def test_the_end_of_a_run_is_sent_once_in_a_session() -> None:
    async def scenario() -> None:
        session = Sessions().open(device_info())
        for run in ("a", "b", "a"):
            session.notify_ended(RunEnded(run=run))
        session.close(WrongState("over"))
        received: list[Message] = []
        with pytest.raises(WrongState, match="over"):
            await collect(session.messages(), received)
        assert received == [RunEnded(run="a"), RunEnded(run="b")]

    asyncio.run(scenario())


def test_a_check_is_sent_once_until_it_is_answered_and_its_blobs_may_be_fetched_until_then() -> None:
    check = EligibilityCheck(run="r", manifest=ref_of_bytes(b"manifest"), signature=ref_of_bytes(b"signature"))

    async def scenario() -> None:
        session = Sessions().open(device_info())
        session.ask(check)
        session.ask(check)
        assert session.may_fetch(check.manifest.sha256)
        assert session.may_fetch(ref_of_bytes(b"signature").sha256)
        assert not session.may_fetch(ref_of_bytes(b"model").sha256)
        session.answered("r")
        assert not session.may_fetch(check.manifest.sha256)
        session.ask(check)
        session.close(WrongState("over"))
        received: list[Message] = []
        with pytest.raises(WrongState, match="over"):
            await collect(session.messages(), received)
        assert received == [check, check]

    asyncio.run(scenario())


def test_sessions_of_rejected_certificates_end_as_if_their_devices_had_left() -> None:
    async def scenario() -> None:
        sessions = Sessions()
        ended, board, insecure = sessions.open(device_info("a"), "1f"), sessions.open(device_info("b"), "2f"), "c"
        sessions.open(device_info(insecure))
        sessions.open(device_info("b"), "3f")  # a reflashed board, with another certificate
        sessions.end_rejected({"1f", "2f"})
        for session, why in ((ended, "the certificate 1f of 'a' is no longer accepted"), (board, "connected again")):
            with pytest.raises((Unavailable, WrongState), match=why):
                await collect(session.messages(), [])
        assert sorted(sessions.local()) == ["b", "c"]
        assert [name for name in ("a", "b", "c") if sessions.has_left(name)] == ["a"]

    asyncio.run(scenario())


def test_an_invalid_fingerprint_is_rejected() -> None:
    for fingerprint in ("f" * 65, "a\nb"):
        with refused(InvalidInput, "fingerprint"):
            replace(device_info(), fingerprint=fingerprint)


def test_operators_labels_reach_sessions_here_and_at_other_replicas_before_and_after_they_open() -> None:
    async def scenario() -> None:
        sessions = Sessions()
        before = sessions.open(replace(device_info("a"), labels={"site": "rome", "tier": "1"}))
        sessions.set_remote({"b": RemoteSession(device_info("b"))})
        labels = {name: {"site": "ulm"} for name in ("a", "b", "c", "d")}
        assert sessions.set_operator_labels(labels) == ["a", "b"], "those that are online"
        assert before.info.all_labels == {"site": "ulm", "tier": "1"}
        assert sessions.open(device_info("c")).info.operator_labels == {"site": "ulm"}
        sessions.set_remote({name: RemoteSession(device_info(name)) for name in ("b", "d")})
        assert [session.info.operator_labels for session in sessions.all()] == [{"site": "ulm"}] * 4
        assert sessions.set_operator_labels({"a": {"site": "ulm"}}) == ["b", "c", "d"]
        assert before.info.all_labels == {"site": "ulm", "tier": "1"}

    asyncio.run(scenario())
