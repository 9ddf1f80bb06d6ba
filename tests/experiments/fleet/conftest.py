from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.preparation import Source, prepare
from moonfed.experiments.fleet.worker_processes import open_processes
from tests.support.simulations import make_simulation

WINE = make_simulation(dataset="wine", model="mlp", parties=3, beta=5.0)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    prepare(WINE, Layout(tmp_path), Source(), lambda _: None)
    return tmp_path


def with_workers(output: Path, number: int, work: Any) -> Any:
    async def run() -> Any:
        async with AsyncExitStack() as stack:
            return await work(await open_processes(stack, number, output, "cpu"))

    return asyncio.run(run())
