"""Limits on gRPC answers that their clients have not read.

gRPC takes an answer from its thread and holds it until the client has read it, however long that takes. So a call whose
answer is not read in time is cancelled, which drops the answer; and earlier, if such answers take too much memory. Then
the oldest call of the client with the most is cancelled.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import grpc

from moonfed.serving.grpc.repeated_check import RepeatedCheck
from moonfed.serving.requests.limits import RequestLimits

CHECK_SECONDS = 0.5  # between two checks
CALL_BYTES = 16 << 10  # that gRPC holds for a call in addition to its answer
REMAINING_SHARE = 0.9  # of the permitted bytes, once too many made answers be dropped: that is slow, so it must be rare
Context = grpc.ServicerContext


class _Answer(NamedTuple):
    """An unread answer: the bytes that it takes, and the time by which it must have been read."""

    size: int
    deadline: float


class UnreadAnswers:
    """The answers that gRPC holds. Thread-safe."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._answers: dict[Context, _Answer] = {}  # the oldest first
        self._bytes = 0
        self._lock = threading.Lock()
        self._checks = RepeatedCheck(self._check, self._answers, seconds=CHECK_SECONDS, thread_name="sending")

    def add(self, context: Context, content: bytes) -> bytes:
        """Count a call's only answer, until its client has read it; return the answer."""
        self._add(context, len(content))
        if not context.add_callback(partial(self._remove, context)):
            self._remove(context)
        return content

    def each(self, context: Context, contents: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the answers of a stream, and count each until gRPC asks for the next one."""
        for content in contents:
            self._add(context, len(content))
            try:
                yield content
            finally:
                self._remove(context)

    def _add(self, context: Context, size: int) -> None:
        deadline = time.monotonic() + self._limits.response_seconds + size / self._limits.body_rate
        with self._lock:
            self._answers[context] = _Answer(size + CALL_BYTES, deadline)
            self._bytes += size + CALL_BYTES
            excess = self._largest_share() if self._bytes > self._limits.pending_bytes else []
        self._checks.wake()
        self._cancel(excess)

    def _remove(self, context: Context) -> None:
        with self._lock:
            if answer := self._answers.pop(context, None):
                self._bytes -= answer.size

    def _check(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [context for context, answer in self._answers.items() if now > answer.deadline]
        self._cancel(late)

    def _largest_share(self) -> list[Context]:
        """Choose answers, each time the oldest of the client with the most bytes; one answer may have any size."""
        held, by_client = _by_client(self._answers)
        chosen, total = list[Context](), self._bytes
        while total > REMAINING_SHARE * self._limits.pending_bytes and len(chosen) < len(self._answers) - 1:
            client = max(by_client, key=lambda each: held[each])
            context = by_client[client].popleft()
            size = self._answers[context].size
            held[client] -= size
            total -= size
            chosen.append(context)
            if not by_client[client]:
                del by_client[client]
        return chosen

    def _cancel(self, contexts: Iterable[Context]) -> None:
        for context in contexts:
            self._remove(context)  # gRPC reports the end of the call later
            context.cancel()  # type: ignore[no-untyped-call]


def _by_client(answers: Mapping[Context, _Answer]) -> tuple[Counter[str], dict[str, deque[Context]]]:
    held: Counter[str] = Counter()
    contexts: dict[str, deque[Context]] = {}
    for context, answer in answers.items():
        client = context.peer().rpartition(":")[0]
        held[client] += answer.size
        contexts.setdefault(client, deque()).append(context)
    return held, contexts
