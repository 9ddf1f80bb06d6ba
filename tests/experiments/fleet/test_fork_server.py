"""The fork server: one for all workers, which end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from moonfed.errors import TrainingFailed
from moonfed.experiments.fleet.worker_processes import ForkServer, ProcessWorker
from tests.experiments.fleet.conftest import with_workers
from tests.support.ended_processes import still_running
from tests.support.simulation_workers import fork_servers, workers

pytestmark = pytest.mark.slow


def test_workers_share_one_server_and_are_reaped(output: Path) -> None:
    async def load(opened: Sequence[ProcessWorker]) -> list[int]:
        assert await asyncio.gather(*(worker.do("load", {}) for worker in opened)) == [{}, {}]
        assert len(workers()) == 2
        return [server.pid for server in fork_servers()]

    first = with_workers(output, 2, load)
    assert workers() == []
    assert with_workers(output, 2, load) == first
    assert len(first) == 1
    assert workers() == []


def test_a_worker_inherits_nothing_but_its_streams(output: Path) -> None:
    async def files(opened: Sequence[ProcessWorker]) -> list[set[str]]:
        await asyncio.gather(*(worker.do("load", {}) for worker in opened))
        return [{str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()} for process in workers()]

    first, second = with_workers(output, 2, files)
    assert len([name for name in first if name.startswith("socket:")]) == 1
    assert not {name for name in first & second if name.startswith("socket:")}


def test_workers_die_with_their_server_and_the_next_ones_get_another(output: Path) -> None:
    async def kill_server(opened: Sequence[ProcessWorker]) -> None:
        await opened[0].do("load", {})
        (server,), mine = fork_servers(), workers()
        server.kill()
        assert still_running([server, *mine], 20) == []
        with pytest.raises(TrainingFailed, match="was killed by SIGKILL"):
            await opened[0].do("load", {})

    with_workers(output, 2, kill_server)

    async def load(opened: Sequence[ProcessWorker]) -> None:
        assert await opened[0].do("load", {}) == {}

    with_workers(output, 1, load)


def test_a_server_that_cannot_start_is_reported(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    server = ForkServer()
    with pytest.raises(TrainingFailed, match="the process that starts the workers has ended unexpectedly"):
        server.fork(output, "cpu")
    server.close()
