from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from moonfed.errors import TrainingFailed
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.worker_processes import ProcessWorker
from tests.experiments.fleet.conftest import with_workers
from tests.support.simulation_workers import workers

pytestmark = pytest.mark.slow


def test_a_worker_runs_one_thread_of_arithmetic(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")  # so that nothing else sets the number

    async def threads(opened: Sequence[ProcessWorker]) -> list[int]:
        await opened[0].do("evaluate", {"model_file": str(Layout(output).bundle / "initial.safetensors")})
        return [process.num_threads() for process in workers()]

    assert with_workers(output, 1, threads) == [2]  # the other one reads its commands


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_names_its_signal(output: Path, number: signal.Signals) -> None:
    async def kill(opened: Sequence[ProcessWorker]) -> None:
        workers()[0].send_signal(number)
        with pytest.raises(TrainingFailed, match=f"a worker process was killed by {number.name}"):
            await opened[0].do("load", {})

    with_workers(output, 1, kill)
    assert workers() == []
