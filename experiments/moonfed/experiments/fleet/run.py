"""Simulations: a real coordinator in this process, whose devices are parties that an engine trains.

Rounds, aggregation, durability and recovery are the coordinator's, and each party's state is a device's. So a
simulation that is killed resumes, to the bit.
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

from moonfed.blobs.store import BlobRef
from moonfed.bundle.files import Bundle, read_bundle
from moonfed.control.privacy import PrivacySpent
from moonfed.control.recipe import to_toml
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.errors import NotFound, RunFailed, UntrustedBundle
from moonfed.experiments.environment import describe_environment
from moonfed.experiments.fleet.checkpoint import restore_checkpoint
from moonfed.experiments.fleet.data import read_counts
from moonfed.experiments.fleet.engine import EngineSettings, open_engine
from moonfed.experiments.fleet.follow_run import Clock, Scorer, follow
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.parties import Fleet, Party
from moonfed.experiments.fleet.preparation import Source, prepare, require_ours
from moonfed.experiments.fleet.results import PartyResult, SimulatedRound, SimulationResult, finish, finished
from moonfed.experiments.fleet.solo import simulate_solo
from moonfed.experiments.simulation import SOLO, Simulation
from moonfed.files import sync_directory, sync_file, write_durably
from moonfed.signing.bundle_signature import signed_by
from moonfed.signing.key_files import user_trust


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationProgress:
    """Progress of a simulation, reported whenever it changes."""

    fraction: float  # of all the work, 0 to 1
    sentence: str  # current or latest activity
    score: SimulatedRound | None = None  # the newest scored model


ReportProgress = Callable[[SimulationProgress], None]


def run_simulation(
    simulation: Simulation,
    output: Path,
    *,
    data: Path | None = None,
    bundle: Bundle | None = None,
    checkpoint: Path | None = None,
    engine: EngineSettings | None = None,
    progress: ReportProgress = lambda _: None,
    trust: Path | None = None,
) -> SimulationResult:
    """Run a simulation, or return its result at once if it has finished in `output` before.

    `data`: the user's samples, or the folder with the data set's files. `bundle`: the one that the simulation names, if
    it names one. `checkpoint`: the checkpoint to resume, unless `output` holds the
    simulation already, which then resumes. `trust`: the trust file of the engineer who signed a checkpoint's bundle; by
    default, this user's. Raises InvalidInput for an impossible recipe or a directory with other content,
    UntrustedBundle for a bundle that is not signed by a trusted key, and the error of a party that failed: there are no
    retries.
    """
    layout, settings = Layout(output), engine or EngineSettings()
    if checkpoint and not layout.recipe.is_file():
        restore_checkpoint(checkpoint, simulation, output)
    require_ours(simulation, layout)
    if result := finished(simulation, layout):
        return result
    require_accelerator(settings.device)
    source = Source(data=data, bundle=bundle)
    prepare(simulation, layout, source, lambda sentence: progress(SimulationProgress(fraction=0.0, sentence=sentence)))
    trusted = _read_trusted(layout, trust, resumed=checkpoint is not None)
    if simulation.method != SOLO:
        write_durably(layout.run_recipe, to_toml(simulation.recipe(trusted.manifest)).encode())
    if simulation.method == SOLO:
        parties = asyncio.run(_solo(simulation, layout, settings, progress))
        return finish(SimulationResult(simulation=simulation, output=output, parties=parties))
    # Outside the event loop: its end waits for the threads that still use the database.
    with _restore_interrupt(), open_storage(layout.coordinator) as directory:
        rounds, privacy = asyncio.run(_federated(simulation, layout, directory, settings, progress))
    return finish(SimulationResult(simulation=simulation, output=output, rounds=rounds), privacy)


def _read_trusted(layout: Layout, trust: Path | None, resumed: bool) -> Bundle:
    """Read the simulation's bundle; for a stranger's checkpoint, the error tells what to do."""
    try:
        return read_bundle(layout.bundle, signed_by(user_trust(trust)))
    except UntrustedBundle as error:
        if not resumed or trust:
            raise
        advice = f"name its engineer's trust file with --trust, or sign it: moonfed-export sign {layout.bundle}"
        raise UntrustedBundle(f"{error}; {advice}") from None


@contextmanager
def _restore_interrupt() -> Iterator[None]:
    """Restore the handling of Ctrl-C that `_ignore_interrupts` disables."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, handler)


def _ignore_interrupts() -> None:
    """Ignore further Ctrl-C: closing takes seconds; interrupted, it would print a traceback."""
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def party_model(output: Path, party: str) -> Path:
    """Return the newest model that a party has trained; NotFound if there is none."""
    found = [path for path in (Layout(output).runs(party) / RUN).glob("*-*/model.safetensors") if path.is_file()]
    if not found:
        raise NotFound(f"there is no model of {party!r} in {output}")
    return max(found, key=lambda path: tuple(int(number) for number in path.parent.name.split("-")))


class SimulationReporter:
    """Turns events into progress."""

    def __init__(self, report: ReportProgress, rounds: int = 1) -> None:
        self._report, self._rounds = report, rounds
        self._round = 1
        self._cohort = 1
        self._done = 0
        self._score: SimulatedRound | None = None

    def opened(self, round_: int, cohort: int) -> None:
        """Record that a round has started."""
        self._round = round_
        self._cohort = cohort
        self._done = 0
        self._say()

    def delivered(self) -> None:
        """Record that one more of its parties has delivered."""
        self._done += 1
        self._say()

    def scored(self, result: SimulatedRound) -> None:
        """Record the score of a round's model."""
        if self._score is None or result.round >= self._score.round:  # an older model may be scored later
            self._score = result
        self._say()

    def _say(self) -> None:
        fraction = min(1.0, (self._round - 1 + self._done / self._cohort) / self._rounds)
        sentence = f"round {self._round} of {self._rounds}: {self._done} of {self._cohort} parties"
        self._report(SimulationProgress(fraction=fraction, sentence=sentence, score=self._score))


def _parties(layout: Layout) -> list[Party]:
    sizes = read_counts(layout.data).sum(axis=1).tolist()
    return [Party(number=number, samples=size) for number, size in enumerate(sizes, start=1)]


async def _solo(
    simulation: Simulation, layout: Layout, settings: EngineSettings, progress: ReportProgress
) -> tuple[PartyResult, ...]:
    reporter = SimulationReporter(progress)
    parties = _parties(layout)
    reporter.opened(1, len(parties))
    environment = describe_environment(settings.device, settings.workers)
    async with open_engine(settings, layout.root, len(parties)) as engine:
        return await simulate_solo(simulation, layout, engine, environment, parties, reporter.delivered)


async def _federated(
    simulation: Simulation, layout: Layout, directory: Storage, settings: EngineSettings, progress: ReportProgress
) -> tuple[tuple[SimulatedRound, ...], PrivacySpent | None]:
    """Return the rounds, and what a run with privacy has spent."""
    coordinator, clock = Coordinator(directory), Clock(layout)
    reporter = SimulationReporter(progress, simulation.run.rounds)

    def delivered(seconds: float) -> None:
        clock.keep(seconds)
        reporter.delivered()

    environment = describe_environment(settings.device, settings.workers)
    async with open_engine(settings, layout.root, simulation.trained_parties) as engine:
        scorer = Scorer(simulation, layout, directory, coordinator, engine, environment, reporter.scored)
        parties, run = _parties(layout), simulation.run_settings(read_bundle(layout.bundle).manifest)
        fleet = Fleet(
            coordinator=coordinator,
            directory=directory,
            engine=engine,
            layout=layout,
            settings=run,
            draw=simulation.draw,
            behaviour=simulation.behaviour,
            parties=parties,
            delivered=delivered,
        )
        try:
            await coordinator.open()
            await _start_once(run, simulation.draw, layout, directory, coordinator)
            playing = [fleet.play(party) for party in parties]
            await _until_done(follow(coordinator, scorer, clock, reporter.opened), playing, coordinator.dismiss)
            ended = await coordinator.operators.run(RUN)
            if ended.status == "failed":
                raise RunFailed(f"the run has failed: {ended.reason}")
            _keep_model(ended.model, directory, layout)
        finally:
            _ignore_interrupts()
            coordinator.dismiss()
            await scorer.close()
            await coordinator.close()
    return scorer.results, ended.privacy


async def _start_once(
    settings: RunSettings, draw: Draw, layout: Layout, directory: Storage, coordinator: Coordinator
) -> None:
    """Start the run unless an earlier start of this simulation did. No round opens before all parties are online."""
    if any(record.run == RUN for record in directory.store.runs()):
        return
    bundle = read_bundle(layout.bundle)
    for content in bundle.files.values():
        directory.blobs.put_bytes(content)
    new = NewRun(
        name=RUN,
        manifest=bundle.ref.sha256,
        signature=bundle.signature_sha256,
        settings=settings,
        allow_empty=True,  # the parties connect later
        draw=draw,
    )
    await coordinator.operators.start_run(new)


async def _until_done(
    main: Coroutine[Any, Any, None], others: Sequence[Coroutine[Any, Any, None]], stop: Callable[[], None]
) -> None:
    """Run `main` to its end; if any of the others fails before that, stop everything with its error."""
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
    """Copy the last global model to where a user finds it."""
    assert model is not None  # noqa: S101 - the run has finished
    temporary = layout.model.with_suffix(".new")
    shutil.copyfile(directory.blobs.verified_path(model), temporary)
    sync_file(temporary)
    temporary.replace(layout.model)
    sync_directory(layout.root)
