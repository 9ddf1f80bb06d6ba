"""A coordinator on its own resumes every run; one of several drives those whose leases it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import sqlalchemy as sql

from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.replicas.presence import Presence
from moonfed.coordinator.replicas.replication import Replicated, Standalone
from moonfed.coordinator.runs.handle import RunHandle
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.tasks import BackgroundTasks
from tests.support.coordinator_programs import Programs

Two = tuple[Store, Store]


class Runs:
    """A stub that only records which runs are driven or followed."""

    def __init__(self) -> None:
        self.served: Mapping[str, RunHandle] = {}
        self.driven: list[str] = []
        self.followed: list[str] = []
        self.resumed = 0

    async def drive(self, run: str) -> None:
        self.driven.append(run)

    async def follow(self, run: str) -> None:
        self.followed.append(run)

    async def resume_all(self) -> None:
        self.resumed += 1


def replicated(store: Store, runs: Runs, background: BackgroundTasks) -> Replicated:
    presence = Presence(store.online_devices, store.leases.holder or "", Sessions(), Liveness())
    return Replicated(store, runs, presence, background)


def test_a_coordinator_on_its_own_resumes_every_run() -> None:
    runs = Runs()
    alone = Standalone(runs)
    asyncio.run(alone.start())
    asyncio.run(alone.stop())
    assert runs.resumed == 1


def test_a_run_is_followed_until_its_holder_releases_it(two: Two) -> None:
    holder, follower = two

    async def scenario() -> None:
        background = BackgroundTasks()
        holding, following = Runs(), Runs()
        first = replicated(holder, holding, background)
        second = replicated(follower, following, background)
        await first.start()
        await second.start()
        assert (holding.driven, holding.followed) == (["digits"], [])
        assert (following.driven, following.followed[:1]) == ([], ["digits"])
        await background.close()
        await first.stop()
        await replicated(follower, following, background).start()
        assert following.driven == ["digits"]
        assert follower.leases.held() == {"digits"}
        await background.close()

    asyncio.run(scenario())


def test_a_stopping_replica_withdraws_its_devices(two: Two) -> None:
    holder, follower = two

    async def scenario() -> None:
        background = BackgroundTasks()
        replica = replicated(holder, Runs(), background)
        await replica.start()
        holder.online_devices.publish({"a": {}}, {})
        await background.close()
        await replica.stop()

    asyncio.run(scenario())
    assert follower.online_devices.all() == {}


def test_a_replica_ends_once_a_newer_release_has_contracted_the_schema(url: str, tmp_path: Path) -> None:
    """Start a replica that was away while the others were upgraded."""
    with ExitStack() as stack:
        programs = Programs(tmp_path, stack)
        programs.serve("--database", url)
        store = open_store(url, used_before=True)
        with store._transactions.write() as connection:
            connection.execute(sql.update(tables.schema).values(readable_from=10_000))
        assert programs.process
        assert programs.process.wait(60) == 6
        assert store.online_devices.replicas() == 0, "it has withdrawn its entries"
        store.close()
    assert "10000" in programs.log.splitlines()[-1]
