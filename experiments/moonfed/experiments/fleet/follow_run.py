"""Following a simulation's run: times its rounds, scores every global model, and writes the results."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count, takewhile

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import Manifest
from moonfed.control.events import (
    DeviceDeclined,
    DeviceLost,
    RoundAbandoned,
    RoundCommitted,
    RoundOpened,
    RunEvent,
    Snapshot,
    UpdateRejected,
)
from moonfed.control.runs import Round
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.events import EARLY
from moonfed.coordinator.storage.opening import Storage
from moonfed.errors import Corrupt, MoonfedError, Unavailable
from moonfed.experiments.environment import Environment
from moonfed.experiments.fleet.engine import Engine
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.parties import DROPPED_OUT
from moonfed.experiments.fleet.results import SimulatedRound, read_rows, write_rows
from moonfed.experiments.simulation import Simulation

MEASURED = ("loss", "seconds", "party_seconds")  # what we add to a round's metrics, besides the primary one
OTHER = "test_"  # before the names of the task's other metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """The wall time of a round, and the total time of its parties' training."""

    seconds: float
    party_seconds: float = 0.0


class Clock:
    """Times the open round over all starts of the simulation, including the time before a kill."""

    def __init__(self, layout: Layout) -> None:
        self._file = layout.clock
        self._round = 0
        self._before = 0.0
        self._started = time.monotonic()
        self._party_seconds = 0.0

    def start(self, round_: int) -> None:
        """Begin, or resume, a round."""
        if round_ != self._round:
            self._before, self._party_seconds = self._kept(round_)
            self._round, self._started = round_, time.monotonic()

    @property
    def times(self) -> RoundTimes:
        """The open round's times so far."""
        return RoundTimes(seconds=self._before + time.monotonic() - self._started, party_seconds=self._party_seconds)

    def keep(self, party_seconds: float) -> None:
        """Add a party's training time, and store the times for a later start, though not durably."""
        self._party_seconds += party_seconds
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps({"round": self._round, **asdict(self.times)}))
        temporary.replace(self._file)

    def _kept(self, round_: int) -> tuple[float, float]:
        try:
            kept = json.loads(self._file.read_text())
            if kept["round"] == round_:
                return float(kept["seconds"]), float(kept["party_seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return 0.0, 0.0


class Scorer:
    """Scores global models while the next round trains; scores are kept in the coordinator's store."""

    def __init__(
        self,
        simulation: Simulation,
        layout: Layout,
        directory: Storage,
        coordinator: Coordinator,
        engine: Engine,
        environment: Environment,
        scored: Callable[[SimulatedRound], None],
    ) -> None:
        self._simulation, self._layout = simulation, layout
        self._directory = directory
        self._coordinator = coordinator
        self._engine = engine
        self._environment, self._scored = asdict(environment), scored
        self._environments = {entry.round: entry.environment for entry in _written(layout)}  # of earlier starts
        self._metric = Manifest.from_bytes(layout.manifest.read_bytes()).metric
        self._results: dict[int, SimulatedRound] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def results(self) -> tuple[SimulatedRound, ...]:
        """The scored rounds, in order."""
        return tuple(self._results[round_] for round_ in sorted(self._results))

    async def catch_up(self) -> None:
        """Recover earlier scores, and score the remaining models."""
        async for record in self._coordinator.operators.rounds(RUN):
            if record.status == "committed" and record.round not in self._tasks:
                self._recover(record)
        self._write()

    def _recover(self, record: Round) -> None:
        if self._metric.name in record.metrics:  # the model itself may have been deleted
            self._results[record.round] = self._result(record.round, record.metrics)
        elif record.model:
            self.score(record.round, record.model, RoundTimes(seconds=record.seconds))

    def score(self, round_: int, model: BlobRef, times: RoundTimes) -> None:
        """Score a round's global model in the background."""
        if round_ not in self._results and round_ not in self._tasks:
            self._tasks[round_] = asyncio.create_task(self._score(round_, model, times))

    async def _score(self, round_: int, model: BlobRef, times: RoundTimes) -> None:
        score = await self._engine.evaluate(self._directory.blobs.local(model))
        known = await asyncio.to_thread(self._directory.store.metrics, RUN, round_)
        plain = (self._metric.name, "loss")
        scores = {name if name in plain else f"{OTHER}{name}": value for name, value in score.items()}
        scores |= asdict(times)
        await self._coordinator.operators.record_metrics(RUN, round_, scores)
        result = self._result(round_, {**known, **scores})
        self._results[round_] = result
        self._write()
        self._scored(result)

    def _result(self, round_: int, metrics: Mapping[str, float]) -> SimulatedRound:
        own = (self._metric.name, *MEASURED)
        found = (self._directory.store.round(AttemptId(run=RUN, round=round_, attempt=number)) for number in count(1))
        attempts = [record for record in takewhile(bool, found) if record]  # each has cost traffic
        return SimulatedRound(
            round=round_,
            score=float(metrics[self._metric.name]),
            metric=self._metric,
            other_scores={name.removeprefix(OTHER): value for name, value in metrics.items() if name.startswith(OTHER)},
            metrics={name: value for name, value in metrics.items() if name not in own and not name.startswith(OTHER)},
            environment=self._environments.get(round_, self._environment),
            sent_bytes=sum(record.sent_bytes for record in attempts),
            received_bytes=sum(record.received_bytes for record in attempts),
            **{name: float(metrics[name]) for name in MEASURED if name in metrics},
        )

    def _write(self) -> None:
        """Rewrite the rows from the store, so that a kill at any moment neither loses nor repeats a line."""
        write_rows(self._simulation, self._layout, self.results)

    async def finish(self) -> None:
        """Wait until all models are scored; raise the first error."""
        await asyncio.gather(*self._tasks.values())

    def raise_failure(self) -> None:
        """Raise the first error so far."""
        for task in self._tasks.values():
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    async def close(self) -> None:
        """Cancel pending scores."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _written(layout: Layout) -> Sequence[SimulatedRound]:
    """Return the rounds of results.jsonl; none if it is damaged, since it is about to be written again."""
    try:
        return read_rows(layout)[0]
    except Corrupt:
        return ()


async def follow(coordinator: Coordinator, scorer: Scorer, clock: Clock, opened: Callable[[int, int], None]) -> None:
    """Follow the run until it has ended and all its models are scored; raise any error that invalidates the simulation.

    `opened` is called with each round that opens or resumes and the number of parties in its cohort.
    """
    lacking = set[tuple[int, int]]()  # attempts in which parties dropped out
    private = False  # a round with privacy that draws too few parties is drawn again
    async for event in _events(coordinator):
        scorer.raise_failure()
        match event:
            case Snapshot():
                await scorer.catch_up()
                private = event.run.settings.private
                if current := event.run.open_round:
                    clock.start(current.round)
                    opened(current.round, len(current.cohort))
            case RoundOpened():
                clock.start(event.round)
                opened(event.round, len(event.cohort))
            case RoundCommitted() if event.model:
                scorer.score(event.round, event.model, clock.times)
            case DeviceDeclined() if event.reason == DROPPED_OUT:
                lacking.add((event.round, event.attempt))
            case RoundAbandoned() if private or event.reason.startswith(EARLY):
                pass
            case RoundAbandoned() if (event.round, event.attempt) not in lacking:  # else, the next attempt counts them
                raise MoonfedError(f"round {event.round}: {event.reason}")
            case UpdateRejected() | DeviceDeclined():
                raise MoonfedError(f"{event.device}: {event.reason}")
            case DeviceLost():
                raise MoonfedError(f"{event.device}: device lost")
    await scorer.finish()


async def _events(coordinator: Coordinator) -> AsyncIterator[RunEvent]:
    ended = False
    while not ended:
        with suppress(Unavailable):  # we fell behind; a new snapshot replaces the missed events
            async for event in coordinator.operators.watch(RUN):
                yield event
            ended = True
