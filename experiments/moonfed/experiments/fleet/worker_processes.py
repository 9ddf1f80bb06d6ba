"""Workers as processes of this machine, spoken to through pipes; they end with us, however we end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from moonfed import errors
from moonfed.edge_client.worker.messages import decode, encode

log = logging.getLogger(__name__)


class ProcessWorker:
    """A handle on one process of moonfed.experiments.fleet.worker."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        """Send a command and wait for its answer; TrainingFailed if the process exits instead."""
        assert self._process.stdin  # noqa: S101 - both were opened as pipes
        assert self._process.stdout  # noqa: S101
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended; its silence tells
            self._process.stdin.write(encode(kind, **fields))
            await self._process.stdin.drain()
        while line := await self._process.stdout.readline():
            answer, found = decode(line)
            if answer == "done":
                return found
            if answer == "failed":
                raise errors.error_from_process(found["error"], found["reason"])
            log.log(int(found["level"]), "%s", found["text"])
        raise errors.TrainingFailed(f"a worker process {_ending(await self._process.wait())}")

    async def end(self) -> None:
        """Kill the process; its files are whole at every moment."""
        with suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin:
            self._process.stdin.close()
        await self._process.wait()


async def open_processes(stack: AsyncExitStack, number: int, output: Path, accelerator: str) -> Sequence[ProcessWorker]:
    """Start that many workers; the stack stops them."""
    workers = []
    for _ in range(number):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "moonfed.experiments.fleet.worker", str(output), accelerator, str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is for us alone
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        )
        worker = ProcessWorker(process)
        stack.push_async_callback(worker.end)
        workers.append(worker)
    return workers


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited unexpectedly with code {code}"
    advice = "; this machine may be out of memory, which fewer --workers would spare" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{advice}"
