"""Targets are sent when they differ, superseded when they change, and not repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moonfed.coordinator.devices.release_targets import ReleaseTargets
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, RemoteSession, Sessions
from moonfed.coordinator.storage.db import sqlite
from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound
from moonfed.fleet.target_release import TargetRelease
from moonfed.version import CONTRACT_VERSION
from tests.support.releases import NAME, add_releases, deployment, installed, ref, report

INFO: dict[str, Any] = {"contract_version": CONTRACT_VERSION, "plan_interfaces": (), "platform": {}}


def info(device: str, fingerprint: str = "f") -> DeviceInfo:
    return DeviceInfo(device=device, fingerprint=fingerprint, **INFO)


def target(version: int, number: int = 1, **fields: Any) -> TargetRelease:
    files = {"variant": "float32", "manifest": ref("m"), "signature": ref("s")} if version else {}
    return TargetRelease(name=NAME, deployment=number, version=version, **{**files, **fields})


def sent(session: DeviceSession) -> list[int]:
    """Take the versions that wait for a device."""
    found = []
    while not session._queue.empty():
        message = session._queue.get_nowait()
        assert isinstance(message, TargetRelease)
        found.append(message.version)
    return found


def test_a_session_sends_what_differs_and_what_supersedes() -> None:
    session = DeviceSession(info("cam-1"))
    session.set_target(target(1), installed=True)
    assert sent(session) == []
    for _ in range(2):
        session.set_target(target(2, 2), installed=False)
    assert sent(session) == [2]
    session.set_target(target(2, 2, roll_back=True), installed=True)  # once it has installed it
    assert sent(session) == []
    session.set_target(target(3, 3), installed=False)
    session.set_target(target(2, 2, roll_back=True), installed=True)  # rolled back while the device installs it
    assert sent(session) == [3, 2]
    session.set_target(target(3, 4), installed=False)
    assert sent(session) == [3]
    session.set_target(target(0, 4), installed=False)
    assert sent(session) == [0]


def test_the_session_at_another_replica_sends_nothing() -> None:
    session = RemoteSession(info("cam-1"))
    session.set_target(target(1), installed=False)
    assert session._queue.empty()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return sqlite.open_store(tmp_path / "coordinator.db")


def test_targets_follow_deployments_arrivals_and_reports(store: Store) -> None:
    fleet = add_releases(store, 2, devices=3)

    async def scenario() -> None:
        sessions = Sessions()
        targets = ReleaseTargets(store.deployments, sessions)
        first = sessions.open(info(fleet[0]))
        targets.connect(first, ())
        await targets.refresh()
        assert sent(first) == []
        store.deployments.deploy(deployment(0, 1))  # by whichever replica
        await targets.refresh()
        assert sent(first) == [1]
        await targets.report(report(fleet[0], 1, 1, "installed", 1))
        await targets.refresh()
        assert sent(first) == []
        second = sessions.open(info(fleet[1]))
        targets.connect(second, (installed(1),))
        third = sessions.open(info(fleet[2]))
        targets.connect(third, ())
        await targets.refresh()
        assert (sent(second), sent(third)) == ([], [1])
        store.deployments.deploy(deployment(0, 2))
        await targets.refresh()
        assert [sent(session) for session in (first, second, third)] == [[2], [2], [2]]
        store.deployments.roll_back(NAME)
        await targets.refresh()
        assert [sent(session) for session in (first, second, third)] == [[1], [1], [1]]
        with pytest.raises(NotFound, match="no deployment 9"):
            await targets.report(report(fleet[0], 9, 1, "installed", 1))

    asyncio.run(scenario())


def test_the_replica_of_the_device_sends_what_follows_a_report_to_another_one(store: Store) -> None:
    fleet = add_releases(store, 2, devices=1)
    store.deployments.deploy(deployment(0, 1))
    store.deployments.deploy(deployment(0, 2))

    async def scenario() -> None:
        sessions = Sessions()
        here, there = (ReleaseTargets(store.deployments, held) for held in (sessions, Sessions()))
        session = sessions.open(info(fleet[0]))
        here.connect(session, ())
        await here.refresh()
        assert sent(session) == [2]
        await there.report(report(fleet[0], 2, 2, "declined", 0, fingerprint="f"))
        await here.refresh()
        assert sent(session) == [1]

    asyncio.run(scenario())


def test_an_arrival_is_recorded_before_the_reports_that_follow_it(store: Store) -> None:
    fleet = add_releases(store, 2, devices=1)
    store.deployments.deploy(deployment(0, 1))
    store.deployments.deploy(deployment(0, 2))

    async def scenario() -> None:
        sessions = Sessions()
        targets = ReleaseTargets(store.deployments, sessions)
        session = sessions.open(info(fleet[0]))
        targets.connect(session, (installed(1),))
        await targets.report(report(fleet[0], 2, 2, "installed", 2, previous=1))
        await targets.refresh()
        assert [found.installed for found in store.deployments.devices(NAME)] == [2]

    asyncio.run(scenario())


def test_a_device_that_has_gone_or_come_back_is_recorded_once(store: Store) -> None:
    fleet = add_releases(store, 1, devices=1)
    store.deployments.deploy(deployment(0, 1))

    async def scenario() -> None:
        sessions = Sessions()
        targets = ReleaseTargets(store.deployments, sessions)
        gone = sessions.open(info(fleet[0]))
        targets.connect(gone, (installed(1),))
        sessions.discard(gone)
        await targets.refresh()
        assert store.deployments.devices(NAME)[0].installed == 0
        back = sessions.open(info(fleet[0]))
        targets.connect(back, (installed(1),))
        await targets.refresh()
        assert store.deployments.devices(NAME)[0].installed == 1

    asyncio.run(scenario())


def test_a_device_that_connects_during_a_refresh_is_not_sent_what_it_has(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = add_releases(store, 2, devices=1)
    store.deployments.deploy(deployment(0, 1))

    async def scenario() -> None:
        sessions, opened = Sessions(), list[DeviceSession]()
        targets, version = ReleaseTargets(store.deployments, sessions), store.deployments.version

        def connect_meanwhile() -> int:
            opened.append(sessions.open(info(fleet[0])))
            return version()

        with monkeypatch.context() as patch:
            patch.setattr(store.deployments, "version", connect_meanwhile)
            await targets.refresh()
        (session,) = opened
        assert sent(session) == []
        targets.connect(session, (installed(1),))
        await targets.refresh()
        assert sent(session) == []
        store.deployments.deploy(deployment(0, 2))
        await targets.refresh()
        assert sent(session) == [2]

    asyncio.run(scenario())


def test_an_unavailable_database_loses_no_arrival(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = add_releases(store, 1, devices=1)
    store.deployments.deploy(deployment(0, 1))

    async def scenario() -> None:
        sessions = Sessions()
        targets = ReleaseTargets(store.deployments, sessions)
        session = sessions.open(info(fleet[0]))
        targets.connect(session, ())
        with monkeypatch.context() as patch:
            patch.setattr(store.deployments, "connected", _fail)
            with pytest.raises(OSError, match="away"):
                await targets.refresh()
        await targets.refresh()
        assert sent(session) == [1]

    asyncio.run(scenario())


def _fail(_arrivals: object) -> None:
    raise OSError("away")
