"""Engines of a simulation: pools of workers that take jobs, the largest first, in processes or Ray actors."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from moonfed.edge_client.job import Job
from moonfed.errors import InvalidInput
from moonfed.validate import require_whole

Kind = Literal["processes", "ray"]
GATHER_SECONDS = 0.005  # a round's jobs arrive together: a worker that waited takes the largest of them


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of the engine: processes on this machine, or actors of a Ray cluster.

    With Ray, the output directory must be on a file system that all of the cluster's machines share. `workers`: by
    default one for each core. Neither changes the results.
    """

    kind: Kind = "processes"
    workers: int = field(default_factory=lambda: available_cores())
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput(field="engine", value=self.kind, allowed="'processes' or 'ray'")
        require_whole("workers", self.workers, 1)
        if self.device not in ("cpu", "cuda"):
            raise InvalidInput(field="device", value=self.device, allowed="'cpu' or 'cuda'")


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class EngineWorker(Protocol):
    """One worker, which does one thing at a time."""

    async def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        """Load the plan, train a party or score a model; a failure is a MoonfedError."""


class Engine(Protocol):
    """Trains parties and scores models for the virtual fleet."""

    async def train(self, party: int, job: Job, size: int) -> float:
        """Train a party, counted from 1; return the seconds. Its update is then in the party's state.

        `size`: the amount of work; larger jobs start first.
        """

    async def evaluate(self, model_file: Path) -> Mapping[str, float]:
        """Score a model on the whole test set: accuracy and loss."""


@dataclass(order=True)
class _Request:
    rank: tuple[int, int]  # the largest first, then in order of arrival
    kind: str = field(compare=False)
    fields: Mapping[str, Any] = field(compare=False)
    answer: asyncio.Future[Mapping[str, float]] = field(compare=False)


class Pool:
    """An engine over workers: each takes the largest waiting job, so that all end at about the same time."""

    def __init__(self, workers: Sequence[EngineWorker]) -> None:
        self._requests: asyncio.PriorityQueue[_Request] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._tasks = [asyncio.create_task(self._serve(worker)) for worker in workers]

    async def train(self, party: int, job: Job, size: int) -> float:
        """Implement `Engine`."""
        return (await self._ask(size, "train", {"party": party, "job": job.to_document()}))["seconds"]

    async def evaluate(self, model_file: Path) -> Mapping[str, float]:
        """Implement `Engine`; scoring comes last, and so overlaps the end of the next round."""
        return await self._ask(0, "evaluate", {"model_file": str(model_file)})

    async def close(self) -> None:
        """Stop dispatching jobs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, size: int, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        answer: asyncio.Future[Mapping[str, float]] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait(_Request((-size, next(self._numbers)), kind, fields, answer))
        return await answer

    async def _serve(self, worker: EngineWorker) -> None:
        while True:
            request = await self._next()
            if request.answer.done():  # the caller was cancelled
                continue
            try:
                found = await worker.do(request.kind, request.fields)
            except Exception as error:
                if not request.answer.done():
                    request.answer.set_exception(error)
            else:
                if not request.answer.done():
                    request.answer.set_result(found)

    async def _next(self) -> _Request:
        waited = self._requests.empty()
        request = await self._requests.get()
        if waited:
            self._requests.put_nowait(request)
            await asyncio.sleep(GATHER_SECONDS)
            request = await self._requests.get()
        return request


@asynccontextmanager
async def open_engine(settings: EngineSettings, output: Path, parties: int) -> AsyncIterator[Engine]:
    """Start the workers for a simulation in `output`; they stop when the context ends."""
    number = min(settings.workers, parties)
    open_workers = _opener(settings.kind)
    async with AsyncExitStack() as stack:
        workers = await open_workers(stack, number, output.resolve(), settings.device)
        await asyncio.gather(*(worker.do("load", {}) for worker in workers))  # torch takes seconds; no round's time
        pool = Pool(workers)
        stack.push_async_callback(pool.close)
        yield pool


def _opener(kind: Kind) -> Callable[..., Any]:
    """Return the function that starts workers; only the kind in use is imported."""
    if kind == "ray":
        from moonfed.experiments.fleet.ray_workers import open_ray_workers

        return open_ray_workers
    from moonfed.experiments.fleet.worker_processes import open_processes

    return open_processes
