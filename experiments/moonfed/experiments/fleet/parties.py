"""The parties: each connects to the coordinator like a device, and has the engine run its assignments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from moonfed.assignment import Assignment
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.training.rng import steps_per_epoch
from moonfed.encodings import known_encodings
from moonfed.errors import Corrupt, MoonfedError
from moonfed.experiments.fleet.engine import Engine
from moonfed.experiments.fleet.layout import Layout
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One virtual device."""

    number: int  # from 1
    samples: int

    @property
    def name(self) -> str:
        """The device's name."""
        return f"party-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """State that all parties share. `delivered` is called for each update, with the seconds of its training."""

    coordinator: Coordinator
    directory: Storage
    engine: Engine
    layout: Layout
    stragglers: float
    seed: int
    delivered: Callable[[float], None]

    async def play(self, party: Party) -> None:
        """Stay online until the coordinator stops; raise any error that kept the party from delivering an update."""
        info = DeviceInfo(
            device=party.name,
            contract_version=CONTRACT_VERSION,
            plan_interfaces=(PLAN_INTERFACE,),
            platform={},
            samples=party.samples,
            encodings=known_encodings(),
        )
        async with self.coordinator.devices.connect(info) as session:
            async for assignment in session.assignments():
                await self._deliver(party, assignment)

    async def _deliver(self, party: Party, assignment: Assignment) -> None:
        files = {role: self.directory.blobs.local(ref) for role, ref in assignment.blobs.items()}
        budget = self._max_steps(party, assignment)
        stored, seconds = await trained(self.engine, self.layout, party, assignment, files, budget)
        update = stored.update
        header = UpdateHeader(
            id=assignment.id,
            device=party.name,
            blobs={role: ref for role, (ref, _) in stored.outgoing.items()},
            samples=update.samples,
            steps=update.steps,
            metrics=update.metrics,
            encoding=assignment.encodings.up,
        )
        await self.coordinator.updates.submit_files(header, {role: file for role, (_, file) in stored.outgoing.items()})
        self.delivered(seconds)

    def _max_steps(self, party: Party, assignment: Assignment) -> int | None:
        """Return a straggler's work budget in this round."""
        if not self.stragglers or party.name not in self._stragglers(assignment.id):
            return None
        steps = assignment.training.epochs * steps_per_epoch(party.samples, assignment.training.batch_size)
        return partial_steps(steps, self.seed, assignment.id.round, party.name)

    def _stragglers(self, attempt: AttemptId) -> list[str]:
        """Return the stragglers of the round's cohort."""
        found = self.directory.store.round(attempt)
        cohort = found.cohort if found else ()
        return draw_stragglers(cohort, self.stragglers, self.seed, attempt.round)


def draw_stragglers(cohort: tuple[str, ...], share: float, seed: int, round_: int) -> list[str]:
    """Draw a share of a cohort, the number rounded; the same for the same seed, round and cohort."""
    ranked = sorted(cohort, key=lambda name: _draw(seed, round_, name, "straggles"))
    return ranked[: round(share * len(cohort))]


def partial_steps(steps: int, seed: int, round_: int, name: str) -> int:
    """Draw a straggler's optimiser steps in a round, uniformly from 1 to all of them."""
    return 1 + int(_draw(seed, round_, name, "steps") * steps)


def _draw(seed: int, round_: int, name: str, purpose: str) -> float:
    """Draw a number, uniform in [0, 1)."""
    digest = hashlib.sha256(f"{seed}/{round_}/{purpose}/{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) / 2**53


async def trained(
    engine: Engine,
    layout: Layout,
    party: Party,
    assigned: Assignment,
    files: Mapping[str, Path],
    max_steps: int | None = None,
) -> tuple[StoredRound, float]:
    """Return the party's update for an assignment and the seconds of training; 0 if it was trained before a kill.

    `files`: the global state that the round starts from, by role.
    """
    state = RunState(layout.runs(party.name), assigned.id.run, manifest=assigned.manifest.sha256, seed=assigned.seed)
    digest = assigned.digest(max_steps)
    # Without a thread on the way to the engine: the round's jobs then arrive together, and the largest goes first.
    if stored := state.find(assigned.id.round, assigned.id.attempt, digest):
        return stored, 0.0
    job = Job(
        id=assigned.id,
        training=assigned.training,
        seed=assigned.seed,
        digest=digest,
        manifest_file=str(layout.manifest),
        plan_file=str(layout.plan),
        files={role: str(file) for role, file in files.items()},
        max_steps=max_steps,
        counted=assigned.counted,
        encodings=assigned.encodings,
    )
    try:
        seconds = await engine.train(party.number, job, party.samples)
    except MoonfedError as error:
        raise type(error)(f"{party.name}: {error}") from error
    if stored := state.find(assigned.id.round, assigned.id.attempt, digest):
        return stored, seconds
    raise Corrupt(f"{party.name}'s trained model cannot be read back; the disk may be damaged")
