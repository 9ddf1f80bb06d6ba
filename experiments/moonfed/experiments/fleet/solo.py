"""SOLO: every party trains alone from the initial weights; their models without any exchange (MOON, table 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import MODEL, WEIGHTS_FILE, Manifest
from moonfed.experiments.environment import Environment
from moonfed.experiments.fleet.engine import Engine
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.parties import Party, trained
from moonfed.experiments.fleet.results import PartyResult, read_rows, write_rows
from moonfed.experiments.simulation import Simulation
from moonfed.fleet.assignment import Assignment, AttemptId


async def simulate_solo(
    simulation: Simulation,
    layout: Layout,
    engine: Engine,
    environment: Environment,
    parties: Sequence[Party],
    delivered: Callable[[], None],
) -> tuple[PartyResult, ...]:
    """Train and score the remaining parties; return the results in order of the parties.

    Each party trains a single round with all of the recipe's epochs.
    """
    content = layout.manifest.read_bytes()
    manifest = Manifest.from_bytes(content)
    plain = (manifest.metric.name, "loss")
    assigned = Assignment(
        id=AttemptId(run=RUN, round=1, attempt=1),
        manifest=ref_of_bytes(content),
        blobs={MODEL: manifest.files[WEIGHTS_FILE]},
        training=manifest.training_at(1),
        seed=simulation.run.seed,
    )
    results = {result.party: result for result in read_rows(layout)[1]}

    async def play(party: Party) -> None:
        if party.name not in results:
            stored, seconds = await trained(engine, layout, party, assigned, {MODEL: layout.bundle / WEIGHTS_FILE})
            score = await engine.evaluate(stored.model_file)
            results[party.name] = PartyResult(
                party=party.name,
                score=score[manifest.metric.name],
                metric=manifest.metric,
                loss=score["loss"],
                other_scores={name: value for name, value in score.items() if name not in plain},
                seconds=seconds,
                environment=asdict(environment),
            )
            write_rows(simulation, layout, [results[other.name] for other in parties if other.name in results])
        delivered()

    await asyncio.gather(*(play(party) for party in parties))
    return tuple(results[party.name] for party in parties)
