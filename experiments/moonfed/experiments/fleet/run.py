"""Runs a simulation: a real coordinator in this process, whose devices are parties that an engine trains.

Rounds, aggregation, durability and recovery are the coordinator's, and each party's state is a device's. So a
simulation that is killed goes on where it was, to the bit.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from moonfed.blobs import BlobRef
from moonfed.bundle import read_bundle
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.rounds.retention import KEEP_ALL
from moonfed.coordinator.rounds.settings import Amount, RunSettings
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.edge_client.worker.trainer import require_accelerator
from moonfed.errors import NotFound
from moonfed.experiments.fleet.checkpoint import restore_checkpoint
from moonfed.experiments.fleet.data import read_counts
from moonfed.experiments.fleet.engine import EngineSettings, open_engine
from moonfed.experiments.fleet.follow_run import Clock, Scorer, follow
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.parties import Fleet, Party
from moonfed.experiments.fleet.preparation import prepare, require_ours
from moonfed.experiments.fleet.results import PartyResult, RoundResult, SimulationResult, finish, finished
from moonfed.experiments.fleet.solo import simulate_solo
from moonfed.experiments.simulation import SOLO, Simulation
from moonfed.files import sync_directory, sync_file

FOREVER = 10 * 365 * 86400.0  # seconds: a party is never too late


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationProgress:
    """How far a simulation is, told whenever that changes."""

    fraction: float  # of all the work, 0 to 1
    sentence: str  # what is going on, or has just ended
    accuracy: float | None = None  # of the newest scored model


Tell = Callable[[SimulationProgress], None]


def run_simulation(
    simulation: Simulation,
    output: Path,
    *,
    data: Path | None = None,
    checkpoint: Path | None = None,
    engine: EngineSettings | None = None,
    progress: Tell = lambda _: None,
) -> SimulationResult:
    """Runs a simulation to its end, or returns its result at once if it has finished in `output` before.

    `data`: the folder that holds the data set's files. `checkpoint`: what to resume, unless `output` holds the
    simulation already, which then resumes. Raises InvalidInput for what cannot work or a directory that holds something
    else, and what made a party fail: there are no retries.
    """
    layout, settings = Layout(output), engine or EngineSettings()
    if checkpoint and not layout.recipe.is_file():
        restore_checkpoint(checkpoint, simulation, output)
    require_ours(simulation, layout)
    if result := finished(simulation, layout):
        return result
    require_accelerator(settings.device)
    prepare(simulation, layout, data, lambda sentence: progress(SimulationProgress(fraction=0.0, sentence=sentence)))
    if simulation.method == SOLO:
        parties = asyncio.run(_solo(simulation, layout, settings, progress))
        return finish(SimulationResult(simulation=simulation, output=output, parties=parties))
    # Outside the event loop: its end waits for the threads that still use the database.
    with _one_interrupt(), open_storage(layout.coordinator) as directory:
        rounds = asyncio.run(_federated(simulation, layout, directory, settings, progress))
    return finish(SimulationResult(simulation=simulation, output=output, rounds=rounds))


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Puts Ctrl-C back at the end, for `_close_undisturbed`, which takes it away."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, handler)


def _close_undisturbed() -> None:
    """From now on another Ctrl-C changes nothing: closing takes seconds; broken off, it would print a traceback."""
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def party_model(output: Path, party: str) -> Path:
    """The newest model that a party has trained; NotFound if there is none."""
    found = [path for path in (Layout(output).runs(party) / RUN).glob("*-*/model.safetensors") if path.is_file()]
    if not found:
        raise NotFound(f"there is no model of {party!r} in {output}")
    return max(found, key=lambda path: tuple(int(number) for number in path.parent.name.split("-")))


class Teller:
    """Turns what happens into progress."""

    def __init__(self, tell: Tell, rounds: int = 1) -> None:
        self._tell, self._rounds = tell, rounds
        self._round, self._cohort, self._done = 1, 1, 0
        self._accuracy: float | None = None

    def opened(self, round_: int, cohort: int) -> None:
        """A round is under way."""
        self._round, self._cohort, self._done = round_, cohort, 0
        self._say()

    def delivered(self) -> None:
        """One more of its parties has delivered."""
        self._done += 1
        self._say()

    def scored(self, accuracy: float) -> None:
        """The newest model's accuracy is known."""
        self._accuracy = accuracy
        self._say()

    def _say(self) -> None:
        fraction = min(1.0, (self._round - 1 + self._done / self._cohort) / self._rounds)
        sentence = f"round {self._round} of {self._rounds}: {self._done} of {self._cohort} parties"
        self._tell(SimulationProgress(fraction=fraction, sentence=sentence, accuracy=self._accuracy))


def _parties(layout: Layout) -> list[Party]:
    sizes = read_counts(layout.data).sum(axis=1).tolist()
    return [Party(number=number, samples=size) for number, size in enumerate(sizes, start=1)]


async def _solo(
    simulation: Simulation, layout: Layout, settings: EngineSettings, progress: Tell
) -> tuple[PartyResult, ...]:
    teller = Teller(progress)
    parties = _parties(layout)
    teller.opened(1, len(parties))
    async with open_engine(settings, layout.root, len(parties)) as engine:
        return await simulate_solo(simulation, layout, engine, parties, teller.delivered)


async def _federated(
    simulation: Simulation, layout: Layout, directory: Storage, settings: EngineSettings, progress: Tell
) -> tuple[RoundResult, ...]:
    federation, teller, clock = Coordinator(directory), Teller(progress, simulation.rounds), Clock(layout)

    def delivered(seconds: float) -> None:
        clock.keep(seconds)
        teller.delivered()

    def scored(result: RoundResult) -> None:
        teller.scored(result.accuracy)

    async with open_engine(settings, layout.root, simulation.trained_parties) as engine:
        scorer = Scorer(simulation, layout, directory, federation, engine, scored)
        fleet = Fleet(
            federation=federation,
            directory=directory,
            engine=engine,
            layout=layout,
            stragglers=simulation.stragglers,
            seed=simulation.seed,
            delivered=delivered,
        )
        try:
            await federation.open()
            await _start_once(simulation, layout, directory, federation)
            playing = [fleet.play(party) for party in _parties(layout)]
            await _until_done(follow(federation, scorer, clock, teller.opened), playing, federation.dismiss)
            _keep_model((await federation.operators.run(RUN)).model, directory, layout)
        finally:
            _close_undisturbed()
            federation.dismiss()
            await scorer.close()
            await federation.close()
    return scorer.results


async def _start_once(simulation: Simulation, layout: Layout, directory: Storage, federation: Coordinator) -> None:
    """Starts the run unless an earlier start of this simulation did. No round opens before all parties attend."""
    if any(record.run == RUN for record in directory.store.runs()):
        return
    bundle = read_bundle(layout.bundle)
    for content in bundle.contents.values():
        directory.blobs.put_bytes(content)
    settings = RunSettings(
        rounds=simulation.rounds,
        cohort=simulation.cohort_amount,
        sampling=simulation.sampling,
        minimum_devices=simulation.trained_parties,
        quorum=Amount(fraction=1.0),
        deadline_seconds=FOREVER,
        patience_seconds=FOREVER,
        seed=simulation.seed,
        encodings=simulation.encodings,
        robust=simulation.robust_settings,
        retention=KEEP_ALL,  # scoring may be far behind
    )
    await federation.operators.start_run(RUN, bundle.ref.sha256, "", settings)


async def _until_done(
    main: Coroutine[Any, Any, None], others: Sequence[Coroutine[Any, Any, None]], stop: Callable[[], None]
) -> None:
    """Runs all of them until the first one ends; whichever fails before that ends everything with its error."""
    tasks = [asyncio.create_task(work) for work in (main, *others)]
    try:
        pending = set(tasks)
        while tasks[0] in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _keep_model(model: BlobRef | None, directory: Storage, layout: Layout) -> None:
    """Puts the last global model where a user finds it."""
    assert model is not None  # noqa: S101 - the run has finished
    temporary = layout.model.with_suffix(".new")
    shutil.copyfile(directory.blobs.verified_path(model), temporary)
    sync_file(temporary)
    temporary.replace(layout.model)
    sync_directory(layout.root)
