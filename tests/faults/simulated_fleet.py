"""A coordinator on a real state directory, on a simulated loop, with devices that learn by arithmetic."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import Vector
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.errors import MoonfedError, SchemaMismatch
from moonfed.fleet.assignment import Assignment
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.faults.crash import Crash
from tests.faults.ledger import Sent
from tests.faults.simulated_loop import SimulatedLoop
from tests.support.coordinator import SIZE, model_bytes

T = TypeVar("T")


class SimulatedCoordinator:
    """One coordinator after another on one state directory; each lives in its own loop, as in its own process."""

    def __init__(self, state: Path, crash: Crash, seed: int) -> None:
        self._state, self._crash, self._seed = state, crash, seed
        self._opened = ExitStack()
        self._calls: list[asyncio.Task[Any]] = []
        self.open()

    def open(self) -> None:
        """Start; a crash may happen in the middle."""
        self._seed += 1
        self.loop = SimulatedLoop(self._seed)
        try:
            self.running = Coordinator(self._opened.enter_context(open_storage(self._state)))
            self.begin(self.running.open())
            self.settle()
        except OSError:
            if not self._crash.has_struck:
                raise

    def end(self) -> None:
        """End the process: work in progress does not continue."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.begin(self.running.close())
        self.settle()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.settle()
        assert not asyncio.all_tasks(self.loop), "it does not end"
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self._opened.close()

    def restart(self, *, dismissed: bool, crash_after: int | None = None) -> None:
        """Restart, cleanly or with a crash. `crash_after`: that many steps."""
        if dismissed and not self._crash.has_struck:
            self.running.dismiss()
            self.settle()
        self._crash.strike()
        self.end()
        self._crash.over()
        if crash_after is not None:
            self._crash.after(crash_after)
        self.open()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a call; its result is checked later."""
        task = self.loop.create_task(work)
        self._calls.append(task)
        return task

    def settle(self) -> None:
        """Run everything that can proceed; a call that failed unexpectedly fails here."""
        self.loop.settle()
        self._raise_failures()

    def _raise_failures(self) -> None:
        done = [task for task in self._calls if task.done()]
        self._calls = [task for task in self._calls if not task.done()]
        for task in done:
            error = None if task.cancelled() else task.exception()
            if error and not (isinstance(error, OSError) and self._crash.has_struck):  # which cuts calls off
                raise error

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Make a call that is answered while nothing else happens, by a coordinator that has not crashed."""
        task = self.loop.create_task(work)
        self.loop.settle()
        return task.result()


@dataclass
class SimulatedDevice:
    """Connects, remembers its newest assignment of each run, and makes updates of it."""

    name: str
    samples: int
    work: dict[str, Assignment] = field(default_factory=dict)  # by run
    connection: asyncio.Task[Any] | None = None

    @property
    def online(self) -> bool:
        return self.connection is not None and not self.connection.done()

    def connect(self, coordinator: SimulatedCoordinator) -> None:
        self.connection = coordinator.begin(self._connect(coordinator.running))

    def leave(self) -> None:
        if self.connection:
            self.connection.cancel()

    def announce_leaving(self, coordinator: SimulatedCoordinator) -> None:
        coordinator.begin(coordinator.running.devices.leave(self.name))

    async def _connect(self, coordinator: Coordinator) -> None:
        info = DeviceInfo(
            device=self.name,
            contract_version=CONTRACT_VERSION,
            plan_interfaces=(PLAN_INTERFACE,),
            platform={},
            samples=self.samples,
        )
        with suppress(MoonfedError):  # it connects once more, or the coordinator stops
            async with coordinator.devices.connect(info) as session:
                async for work in session.assignments():
                    self.work[work.id.run] = work

    def trained(self, id_: AttemptId, before: Vector, variant: int = 0) -> tuple[UpdateHeader, bytes, Sent]:
        """Compute its model from a global one: deterministic, and different for every device, attempt and variant."""
        seed = hashlib.sha256(f"{self.name}/{id_}/{variant}".encode()).digest()[:8]
        chance = np.random.default_rng(int.from_bytes(seed, "big"))
        vector = np.asarray(0.75 * before + chance.normal(size=SIZE), dtype=np.float32)
        sent = Sent(
            vector=vector,
            samples=self.samples + variant,
            loss=float(chance.uniform(1, 2)),
            ref=ref_of_bytes(model_bytes(vector)),
        )
        return self.header(id_, sent), model_bytes(vector), sent

    def header(self, id_: AttemptId, sent: Sent) -> UpdateHeader:
        return UpdateHeader(
            id=id_,
            device=self.name,
            blobs={"model": sent.ref},
            samples=sent.samples,
            steps=1,
            metrics={"loss": sent.loss},
        )


async def submit_update(coordinator: Coordinator, header: UpdateHeader, content: bytes, path: Path | None) -> None:
    """Submit a whole update, as a file on this machine or in pieces; it has its receipt on return."""
    if path:
        path.write_bytes(content)
        await coordinator.updates.submit_files(header, {"model": path})
    else:
        await submit_rest(coordinator, header, content)


async def submit_rest(coordinator: Coordinator, header: UpdateHeader, content: bytes, *, commit: bool = True) -> None:
    """Send the rest of these bytes that is still missing."""
    session = await coordinator.updates.admit(header)
    try:
        for sha256, offset in session.offsets.items():
            if rest := content[offset:]:
                await session.write(sha256, offset, rest)
        if commit:
            await session.commit()
    finally:
        await session.close()


async def submit_invalid(coordinator: Coordinator, header: UpdateHeader) -> None:
    """Submit an update that is not finite, which must never be accepted."""
    content = model_bytes(float("nan"))
    with suppress(SchemaMismatch):
        await submit_rest(coordinator, replace(header, blobs={"model": ref_of_bytes(content)}), content)
        raise AssertionError("what is not finite was taken")
