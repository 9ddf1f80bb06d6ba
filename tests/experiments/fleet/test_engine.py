"""The engine dispatches the largest party first, and rejects wrong settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.edge_client.job import Job
from moonfed.errors import InvalidInput
from moonfed.experiments.fleet.engine import EngineSettings, Pool
from moonfed.plan.training_spec import TrainingSpec
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


class Recorder:
    """A worker that records its jobs."""

    def __init__(self) -> None:
        self.parties: list[int] = []

    async def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        self.parties.append(fields["party"] if kind == "train" else 0)
        await asyncio.sleep(0)
        return {"seconds": 1.0}


def test_the_largest_party_goes_first_and_scoring_last() -> None:
    job = Job(
        id=AttemptId(run="r", round=1, attempt=1),
        training=TrainingSpec(epochs=1, batch_size=1),
        seed=0,
        digest="",
        manifest_file="",
        plan_file="",
        files={},
    )

    async def order() -> list[int]:
        worker = Recorder()
        pool = Pool([worker])
        jobs = [pool.train(party, job, size) for party, size in ((1, 30), (2, 50), (3, 40), (4, 50))]
        await asyncio.gather(pool.evaluate(Path("model")), *jobs)
        await pool.close()
        return worker.parties

    assert asyncio.run(order()) == [2, 4, 3, 1, 0]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"kind": "slurm"}, ("engine", "slurm")),
        ({"workers": 0}, ("workers", 0)),
        ({"device": "tpu"}, ("device", "tpu")),
    ],
)
def test_a_wrong_engine_is_rejected(keys: dict[str, Any], named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        EngineSettings(**keys)
