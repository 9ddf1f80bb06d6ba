"""Limits on gRPC messages that are still arriving.

gRPC collects a whole message before it passes it on, and waits for it forever. So a call whose message does not arrive
is cancelled after a time; and earlier, if such calls occupy too many threads or too much memory. Then the oldest call
of the client with the most is cancelled.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from moonfed.serving.grpc.repeated_check import RepeatedCheck
from moonfed.serving.requests.limits import RequestLimits

CHECK_SECONDS = 0.1  # between two checks; a message that arrives within this time is never cancelled
_MEMORY = Path("/proc/self/statm")
Context = grpc.ServicerContext


class ReceivingCalls:
    """The calls whose message is still arriving. Thread-safe."""

    def __init__(self, limits: RequestLimits, max_message_bytes: int, max_calls: Mapping[str, int]) -> None:
        """`max_calls`: the number of calls that may occupy a thread while their message arrives, by kind."""
        self._limits, self._max_calls = limits, max_calls
        self._affordable = max(1, limits.pending_bytes // max_message_bytes)  # calls, each with the largest message
        self._calls: dict[Context, tuple[float, str]] = {}  # start time and kind; the oldest first
        self._idle_memory = 0  # the process's memory when no message was late
        self._checks = RepeatedCheck(self._check, self._calls, seconds=CHECK_SECONDS, thread_name="receiving")

    def receive(self, requests: Iterator[Any], context: Context, kind: str) -> Any:
        """Return the next message, None after the last one."""
        if not self._idle_memory:  # the first call may be late at the first check
            self._idle_memory = _resident_bytes()
        self._calls[context] = time.monotonic(), kind
        self._checks.wake()
        try:
            return next(requests, None)
        finally:
            del self._calls[context]

    def _check(self) -> None:
        now = time.monotonic()
        late = [(context, kind) for context, (began, kind) in list(self._calls.items()) if now - began > CHECK_SECONDS]
        if not late:
            self._idle_memory = _resident_bytes()
            return
        for kind, most in self._max_calls.items():
            calls = [context for context, each in late if each == kind]
            cancelled = _largest_share(calls, len(calls) - most)
            cancelled += [each for each in calls if now - self._began(each, now) > self._limits.message_seconds]
            _cancel(cancelled)
        if len(late) > self._affordable and _resident_bytes() - self._idle_memory > self._limits.pending_bytes:
            unary = [context for context, kind in late if kind in self._max_calls]
            streams = [context for context, kind in late if kind not in self._max_calls]
            excess = len(late) - self._affordable
            _cancel(_largest_share(unary, excess) + _largest_share(streams, excess - len(unary)))

    def _began(self, context: Context, default: float) -> float:
        return self._calls.get(context, (default, ""))[0]


def _largest_share(calls: Sequence[Context], count: int) -> list[Context]:
    """Choose up to `count` calls, each time the oldest of the client with the most remaining."""
    if count <= 0:
        return []
    by_client: defaultdict[str, deque[Context]] = defaultdict(deque)
    for context in calls:
        by_client[context.peer().rpartition(":")[0]].append(context)
    return [max(by_client.values(), key=len).popleft() for _ in range(min(count, len(calls)))]


def _cancel(calls: Sequence[Context]) -> None:
    for context in calls:
        context.cancel()  # type: ignore[no-untyped-call]


def _resident_bytes() -> int:
    """Return the process's memory; 0 if the system does not report it."""
    try:
        return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
