"""Watch all active runs at the same time: `python examples/watch_runs_async.py [IDENTITY]`."""

from __future__ import annotations

import asyncio
import sys

from moonfed.client import AsyncCoordinator, Ended, Round, RoundCommitted


async def watch(coordinator: AsyncCoordinator, name: str) -> list[Round]:
    """Print a run's rounds until it ends; return them all."""
    async for event in coordinator.watch(name, progress=False):
        match event:
            case RoundCommitted(round=number, metrics=metrics):
                print(f"{name}, round {number}: {dict(metrics)}")
            case Ended(run=run):
                print(f"{name}: {run.status}")
            case _:
                pass
    return await coordinator.rounds(name)


async def main(identity: str | None = None) -> int:
    """Watch the active runs; return the exit code."""
    async with AsyncCoordinator(identity) as coordinator:
        online = await coordinator.devices(online=True)
        names = [run.run for run in await coordinator.runs() if run.active]
        print(f"{len(online)} devices are online; {len(names)} runs are active")
        rounds = await asyncio.gather(*(watch(coordinator, name) for name in names))
    for name, found in zip(names, rounds, strict=True):
        seconds = sum(entry.seconds for entry in found)
        print(f"{name}: {len(found)} rounds in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:2])))
