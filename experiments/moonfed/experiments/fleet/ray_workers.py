"""Workers as actors of a Ray cluster: the one that RAY_ADDRESS names, or one of this machine's cores.

Paths go to the actors as they are, so the output directory must be on a file system that all machines share.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from moonfed.errors import MoonfedError, NotFound, TrainingFailed


class RayWorker:
    """A handle on one actor."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - ray's handles are untyped
        self._actor = actor

    async def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        """Call the actor; TrainingFailed if it or its machine is lost."""
        import ray

        try:
            found: Mapping[str, float] = await self._actor.do.remote(kind, dict(fields))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, MoonfedError):
                raise error.cause from error
            raise TrainingFailed(f"{type(error.cause).__name__}: {error.cause}") from error
        except ray.exceptions.RayError as error:
            raise TrainingFailed(f"Ray lost a worker: {type(error).__name__}") from error
        return found

    async def end(self) -> None:
        """Kill the actor; its files are always consistent."""
        import ray

        ray.kill(self._actor)


class _Actor:
    """Actor code."""

    def __init__(self, output: str, accelerator: str) -> None:
        from moonfed.experiments.fleet.worker import Worker

        self._worker = Worker(Path(output), accelerator)

    def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        return self._worker.do(kind, fields)


async def open_ray_workers(stack: AsyncExitStack, number: int, output: Path, accelerator: str) -> Sequence[RayWorker]:
    """Start that many actors; the stack stops them, and closes the connection if it was opened here."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise NotFound(
            "engine 'ray' needs the package 'ray', which is not installed; run pip install 'moonfed[ray]'"
        ) from error
    if not ray.is_initialized():
        local: dict[str, Any] = (
            {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": number, "include_dashboard": False}
        )
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **local)
        stack.callback(ray.shutdown)
    resources: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = min(1.0, resources.get("GPU", 0.0) / number) if accelerator == "cuda" else 0.0
    kind = ray.remote(num_cpus=1, num_gpus=gpus)(_Actor)
    workers = []
    for _ in range(number):
        worker = RayWorker(kind.remote(str(output), accelerator))
        stack.push_async_callback(worker.end)
        workers.append(worker)
    return workers
