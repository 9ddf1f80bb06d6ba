"""The parties: each connects to the coordinator like a device, and has the engine run its assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.training.rng import steps_per_epoch
from moonfed.encodings import known_encodings
from moonfed.errors import Corrupt, MoonfedError, WrongState
from moonfed.experiments.attendance import Attendance, Behaviour, attendance, partial_steps
from moonfed.experiments.fleet.engine import Engine
from moonfed.experiments.fleet.layout import Layout
from moonfed.fleet.assignment import Assignment
from moonfed.plan.selection import local_interfaces
from moonfed.version import CONTRACT_VERSION

DROPPED_OUT = "simulated dropout"  # the reason of a party that drops out


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
    settings: RunSettings
    draw: Draw
    behaviour: Behaviour
    parties: Sequence[Party]
    delivered: Callable[[float], None]

    async def play(self, party: Party) -> None:
        """Stay online until the coordinator stops; raise any error that kept the party from delivering an update."""
        info = DeviceInfo(
            device=party.name,
            contract_version=CONTRACT_VERSION,
            plan_interfaces=local_interfaces(),
            platform={},
            samples=party.samples,
            encodings=known_encodings(),
        )
        async with self.coordinator.devices.connect(info) as session:
            async for assignment in session.assignments():
                if self.behaviour.drops_out(assignment.id, party.name):
                    with suppress(WrongState):  # the round did not need it
                        await self.coordinator.devices.decline(assignment.id, party.name, DROPPED_OUT)
                else:
                    await self._deliver(party, assignment)

    async def _deliver(self, party: Party, assignment: Assignment) -> None:
        attended = self._attendance(assignment.id)
        if party.name not in attended.counted:
            return  # too late: the round closes without it
        files = {role: self.directory.blobs.local(ref) for role, ref in assignment.blobs.items()}
        budget = self._max_steps(party, assignment) if party.name in attended.stragglers else None
        stored, seconds = await trained(self.engine, self.layout, party, assignment, files, budget)
        update = stored.update
        header = UpdateHeader(
            id=assignment.id,
            device=party.name,
            blobs={role: ref for role, (ref, _) in stored.outgoing.items()},
            samples=update.samples,
            steps=update.steps,
            metrics=assignment.reported(update.metrics),
            encoding=assignment.encodings.up,
        )
        sent = {role: file for role, (_, file) in stored.outgoing.items()}
        with suppress(WrongState) if self.settings.may_end_early else nullcontext():  # its open round is abandoned
            await self.coordinator.updates.submit_files(header, sent)
            self.delivered(seconds)

    def _max_steps(self, party: Party, assignment: Assignment) -> int:
        """Return a straggler's work budget in this round."""
        steps = assignment.training.epochs * steps_per_epoch(party.samples, assignment.training.batch_size)
        return partial_steps(steps, self.behaviour.seed, assignment.id.round, party.name)

    def _attendance(self, attempt: AttemptId) -> Attendance:
        found = self.directory.store.round(attempt) if attempt.attempt > 1 else None
        samples = {party.name: party.samples for party in self.parties}
        return attendance(
            self.settings, self.draw, attempt, samples, sorted(found.reused) if found else (), self.behaviour
        )


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
        plan_file="",  # each worker has loaded it
        files={role: str(file) for role, file in files.items()},
        parts=layout.parts,
        max_steps=max_steps,
        counted=assigned.counted,
        encodings=assigned.encodings,
        clip_norm=assigned.clip_norm,
    )
    try:
        seconds = await engine.train(party.number, job, party.samples)
    except MoonfedError as error:
        raise type(error)(f"{party.name}: {error}") from error
    if stored := state.find(assigned.id.round, assigned.id.attempt, digest):
        return stored, seconds
    raise Corrupt(f"{party.name}'s trained model cannot be read back; the disk may be damaged")
