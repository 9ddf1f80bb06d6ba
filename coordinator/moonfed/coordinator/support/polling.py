"""Polling of what several replicas change: refresh at intervals, and log only the first of several failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moonfed.coordinator.support.error_log import log_error


async def poll(refresh: Callable[[], Awaitable[None]], seconds: float, log: logging.Logger, problem: str) -> None:
    """Refresh every `seconds`, forever.

    A failure is logged as `problem`, with its error, and not again until a refresh has succeeded.
    """
    failing = False
    while True:
        await asyncio.sleep(seconds)
        try:
            await refresh()
            failing = False
        except Exception as error:
            if not failing:
                log_error(log, problem, error)
            failing = True
