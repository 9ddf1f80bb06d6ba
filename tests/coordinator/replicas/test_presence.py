"""Online devices exchanged between two replicas over one database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, Sessions
from moonfed.coordinator.replicas.presence import Presence, from_document, to_document
from moonfed.coordinator.storage.online_devices import OnlineDevices
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState
from moonfed.labels import INFERENCE_ONLY
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE

Two = tuple[Store, Store]


def info(device: str, samples: int = 10) -> DeviceInfo:
    return DeviceInfo(
        device=device,
        contract_version=CONTRACT_VERSION,
        plan_interfaces=(PLAN_INTERFACE,),
        platform={"torch": "2.6"},
        samples=samples,
        runs=("digits",),
        labels={"site": "north"},
        encodings=("int8",),
    )


@dataclass
class Replica:
    store: Store
    sessions: Sessions = field(default_factory=Sessions)
    liveness: Liveness = field(default_factory=Liveness)
    presence: Presence = field(init=False)

    def __post_init__(self) -> None:
        assert self.store.leases.holder
        self.presence = Presence(self.devices, self.store.leases.holder, self.sessions, self.liveness)

    @property
    def devices(self) -> OnlineDevices:
        return self.store.online_devices

    def online(self) -> list[str]:
        return sorted(session.device for session in self.sessions.all())


def opened(two: Two) -> list[Replica]:
    replicas = [Replica(store) for store in two]
    for replica in replicas:
        replica.devices.heartbeat(30.0)
    return replicas


def test_a_description_travels_without_the_platform() -> None:
    document = to_document(info("a"))
    assert document["platform"] == {}
    assert from_document("a", document).platform == {}
    assert to_document(from_document("a", document)) == document


def test_other_replicas_know_a_device_for_inference_only() -> None:
    document = to_document(replace(info("a"), platform={"torch": "2.6", INFERENCE_ONLY: "yes"}))
    assert from_document("a", document).inference_only
    assert not from_document("a", to_document(info("a"))).inference_only


def test_devices_come_online_and_leave_at_the_other_replica(two: Two) -> None:
    async def scenario() -> None:
        here, there = opened(two)
        session = here.sessions.open(info("a"))
        assert await here.presence.exchange() == set(), "its own devices are no news"
        assert await there.presence.exchange() == {"a"}
        assert there.online() == ["a"]
        found = there.sessions.find("a")
        assert found
        assert (found.info.samples, found.info.labels, found.info.runs) == (10, {"site": "north"}, ("digits",))
        assert await there.presence.exchange() == set(), "nothing has changed since"
        here.sessions.discard(session)
        await here.presence.exchange()
        assert await there.presence.exchange() == {"a"}
        assert there.online() == []

    asyncio.run(scenario())


def test_a_newer_session_at_another_replica_ends_the_one_here(two: Two) -> None:
    async def scenario() -> None:
        here, there = opened(two)
        session: DeviceSession = here.sessions.open(info("a"))
        await here.presence.exchange()
        there.sessions.open(info("a", samples=99))
        await there.presence.exchange()
        assert await here.presence.exchange() == {"a"}
        with pytest.raises(WrongState, match="'a' has connected again"):
            await anext(session.messages())
        assert here.sessions.local() == {}
        found = here.sessions.find("a")
        assert found
        assert found.info.samples == 99

    asyncio.run(scenario())


def test_sessions_that_expired_in_the_database_are_published_again(two: Two) -> None:
    async def scenario() -> None:
        here, there = opened(two)
        here.sessions.open(info("a"))
        await here.presence.exchange()
        here.devices.withdraw()
        await there.presence.exchange()
        assert there.online() == []
        here.devices.heartbeat(30.0)
        here.presence.republish()
        await here.presence.exchange()
        await there.presence.exchange()
        assert there.online() == ["a"]

    asyncio.run(scenario())


def test_heartbeats_received_here_count_at_the_other_replica(two: Two) -> None:
    async def scenario() -> None:
        here, there = opened(two)
        for device in ("a", "b"):
            here.sessions.open(info(device))
        here.liveness.heartbeat("a")
        await here.presence.exchange()
        await here.presence.exchange_heartbeats()
        await there.presence.exchange_heartbeats()
        assert there.liveness.last_heartbeat("a") > 0
        assert there.liveness.last_heartbeat("b") == -float("inf")

    asyncio.run(scenario())


def test_copies_of_a_device_at_two_replicas_are_found_at_both(two: Two) -> None:
    async def scenario() -> None:
        replicas = opened(two)
        for turn in range(6):
            address = f"10.0.0.{turn % 2}:443"
            replicas[turn % 2].sessions.open(replace(info("a"), instance=str(turn % 2), address=address))
            for replica in (*replicas, *replicas):
                await replica.presence.exchange()
        for replica in replicas:
            assert replica.sessions.identities.addresses("a") == ("10.0.0.0", "10.0.0.1")

    asyncio.run(scenario())


def test_a_device_that_changes_between_replicas_is_alone(two: Two) -> None:
    async def scenario() -> None:
        replicas = opened(two)
        for turn in range(6):
            replicas[turn % 2].sessions.open(replace(info("a"), instance="one", address=f"10.0.0.{turn % 2}:443"))
            for replica in (*replicas, *replicas):
                await replica.presence.exchange()
        for replica in replicas:
            assert replica.sessions.identities.addresses("a") == ()

    asyncio.run(scenario())
