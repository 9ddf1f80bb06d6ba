"""Asynchronous streams in tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def collect(items: AsyncIterator[T], into: list[T]) -> None:
    """Collect items until an error ends the stream."""
    async for item in items:
        into.append(item)  # noqa: PERF401
