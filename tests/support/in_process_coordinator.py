"""A coordinator in this process, without gRPC, and parties that submit files which are on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from moonfed.blobs.store import ref_of_file
from moonfed.bundle.files import Bundle
from moonfed.control import events
from moonfed.control.events import RunEvent, Snapshot
from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.fleet.assignment import Assignment
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.support.coordinator import PARAMETERS, SIZE, WAIT, model_bytes

NAMES = ("party-0", "party-1", "party-2")
ALL = RunSettings(
    rounds=4, minimum_devices=3, quorum=Amount(fraction=1.0), heartbeat_timeout=1e6, seed=11, trusting=True
)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, WAIT))


@asynccontextmanager
async def opened(state: Path) -> AsyncIterator[Coordinator]:
    with open_storage(state) as directory:
        coordinator = Coordinator(directory)
        await coordinator.open()
        try:
            yield coordinator
        finally:
            await coordinator.close()


async def started(coordinator: Coordinator, bundle: Bundle, settings: RunSettings = ALL) -> None:
    for content in bundle.files.values():
        coordinator.storage.blobs.put_bytes(content)
    new = NewRun(name="run", manifest=bundle.ref.sha256, signature=bundle.signature_sha256, settings=settings)
    await coordinator.operators.start_run(new)


def device_info(name: str) -> DeviceInfo:
    return DeviceInfo(
        device=name, contract_version=CONTRACT_VERSION, plan_interfaces=(PLAN_INTERFACE,), platform={}, samples=10
    )


def trained(work: Assignment, name: str, directory: Path) -> tuple[UpdateHeader, dict[str, Path]]:
    """Return an update that depends only on the round and the device, as files of the device."""
    chance = np.random.default_rng([work.id.round, NAMES.index(name)])
    contents = {
        "model": model_bytes(chance.uniform(1, 2, SIZE).astype(np.float32)),
        "variate_change": model_bytes(chance.normal(size=15).astype(np.float32), PARAMETERS),
    }
    files = {}
    for role, content in contents.items():
        files[role] = directory / f"{name}-{work.id.round}-{role}"
        files[role].write_bytes(content)
    header = UpdateHeader(
        id=work.id,
        device=name,
        blobs={role: ref_of_file(path) for role, path in files.items()},
        samples=10 * (NAMES.index(name) + 1),
        steps=3,
        metrics={"loss": 1.0, "inexactness": float(NAMES.index(name))},
    )
    return header, files


async def party(coordinator: Coordinator, name: str, directory: Path, rounds: int) -> None:
    async with coordinator.devices.connect(device_info(name)) as session:
        async for work in session.assignments():
            await coordinator.updates.submit_files(*trained(work, name, directory))
            if work.id.round == rounds:
                return


async def watched(coordinator: Coordinator, kind: str, round_: int = 0) -> RunEvent:
    """Return the event when it arrives, or a snapshot that already includes it."""
    async for event in coordinator.operators.watch("run"):
        if isinstance(event, Snapshot):
            if round_ and event.run.round >= round_:
                return event
        elif events.NAMES[type(event)] == kind and getattr(event, "round", 0) in (0, round_):
            return event
    raise AssertionError("the run has ended before")
