"""The dynamic batcher: a bounded queue whose requests run together, as Triton's dynamic_batching says.

There are no threads of its own. Among those who wait for an answer, the one at the head of the queue assembles the next
batch as soon as an instance is free, runs it and hands the answers out; meanwhile the next one takes over. So a request
that meets no other one is run by its own thread, at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from moonfed.errors import MoonfedError, Overloaded, Unavailable
from moonfed.serving.inference_request import Array

Feeds = Mapping[str, Array]
BatchOutputs = list[Mapping[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """When requests run, and how many together; times in nanoseconds, 0: none."""

    max_batch_size: int  # samples; 0: requests never run together
    preferred: frozenset[int] = frozenset()
    max_delay_ns: int = 0
    max_queue_size: int = 0  # requests; 0: any number
    default_timeout_ns: int = 0
    allow_timeout_override: bool = False

    @property
    def limit(self) -> int:
        """The size of a batch for which no more is waited."""
        return max(self.preferred, default=self.max_batch_size)

    def timeout_ns(self, asked_ns: int) -> int:
        """How long a request may wait; it can ask for less than the default, not for more."""
        if self.allow_timeout_override and 0 < asked_ns < self.default_timeout_ns:
            return asked_ns
        return self.default_timeout_ns

    def ready(self, sizes: Sequence[int], *, closed: bool, overdue: bool) -> int:
        """How many requests at the head of the queue to run now; 0: wait for more.

        `sizes`: samples of those that could run together; `closed`: the next one cannot join them; `overdue`: the first
        one has waited for as long as it is to.
        """
        total, best = 0, 0
        for count, size in enumerate(sizes, start=1):
            if total and total + size > self.limit and not best:
                best = count - 1
            total += size
            if total in self.preferred:
                best = count
        if best and not overdue:
            return best
        enough = closed or overdue or not self.max_delay_ns or total >= self.limit
        return len(sizes) if enough else 0

    def next_size(self, total: int) -> int:
        """The number of samples from which on it is worth looking again."""
        return min((size for size in self.preferred if size > total), default=self.limit)


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedRequest:
    """A request in the queue."""

    feeds: Feeds
    names: tuple[str, ...]
    samples: int
    begun_ns: int
    together: Mapping[str, tuple[int, ...]]  # shapes without the batch; where they differ, requests do not run together
    deadline_ns: int
    leads: bool = False
    taken_ns: int = 0
    answer: Mapping[str, Array] | None = None
    error: MoonfedError | None = None
    called: threading.Lock = field(default_factory=threading.Lock)


class Batcher:
    """The queue of one version; `run(instance, batch)` answers a batch or raises MoonfedError."""

    def __init__(
        self, policy: BatchPolicy, instances: int, run: Callable[[int, Sequence[QueuedRequest]], BatchOutputs]
    ) -> None:
        self._policy = policy
        self._run = run
        self._lock = threading.Lock()
        self._joined = threading.Condition(self._lock)
        # If requests wait and an instance is free, the request at the head of the queue is about to lead.
        self._waiting: deque[QueuedRequest] = deque()
        self._idle = list(range(instances))
        self._assembling = False
        self._hurried = False
        self._enough = 0  # samples for which the assembling one, which waits, looks again

    def waiting(self) -> int:
        """How many requests wait for an instance."""
        return len(self._waiting)

    def hurry(self) -> None:
        """From now on nobody waits for company: no more requests will come."""
        with self._lock:
            self._hurried = True
            self._joined.notify()

    def infer(
        self, feeds: Feeds, names: tuple[str, ...], samples: int, begun_ns: int, timeout_ns: int
    ) -> Mapping[str, Array]:
        """Answers a request. Raises Overloaded if the queue is full, Unavailable if it waited for too long."""
        timeout = self._policy.timeout_ns(timeout_ns)
        mine = QueuedRequest(
            feeds=feeds,
            names=names,
            samples=samples,
            begun_ns=begun_ns,
            together={name: array.shape[1:] for name, array in feeds.items()},
            deadline_ns=begun_ns + timeout if timeout else 0,
        )
        mine.called.acquire()
        instance = self._enter(mine)
        if instance is not None:
            self._run_on(instance, [mine])
        elif not mine.leads:
            self._wait(mine)
        if mine.leads:
            self._lead(mine)
        if mine.error is not None:
            raise type(mine.error)(str(mine.error))  # one of its own: a traceback grows with each raise
        assert mine.answer is not None  # noqa: S101
        return mine.answer

    def _enter(self, mine: QueuedRequest) -> int | None:
        """The instance to run the request on at once and alone, if nobody waits; else the request is in the queue."""
        with self._lock:
            if self._idle and not self._waiting and not self._policy.max_delay_ns:
                return self._idle.pop()
            if self._policy.max_queue_size and len(self._waiting) >= self._policy.max_queue_size:
                raise Overloaded("Exceeds maximum queue size")
            self._waiting.append(mine)
            if self._assembling:
                self._tell_assembling(mine)
            elif self._idle:
                self._assembling = mine.leads = True
        return None

    def _tell_assembling(self, mine: QueuedRequest) -> None:
        if self._enough and (
            mine.together != self._waiting[0].together or sum(each.samples for each in self._waiting) >= self._enough
        ):
            self._joined.notify()

    def _wait(self, mine: QueuedRequest) -> None:
        """Until this request is answered, or at the head of the queue with an instance free."""
        if not mine.deadline_ns:
            mine.called.acquire()
            return
        if mine.called.acquire(timeout=_seconds_until(mine.deadline_ns)):
            return
        with self._lock:
            if not (mine.leads or mine.taken_ns):
                self._waiting.remove(mine)
                raise _too_late()
        mine.called.acquire()  # its turn had just come

    def _lead(self, mine: QueuedRequest) -> None:
        with self._lock:
            batch = self._assemble(mine)
            instance = self._idle.pop() if batch else -1
            self._call_next()
        if not batch:
            raise _too_late()
        try:
            self._run_on(instance, batch)
        finally:
            for each in batch:
                if each is not mine:
                    each.called.release()

    def _run_on(self, instance: int, batch: list[QueuedRequest]) -> None:
        try:
            self._answer(instance, batch)
        finally:
            with self._lock:
                self._idle.append(instance)
                if self._waiting and not self._assembling:
                    self._call_next()

    def _call_next(self) -> None:
        self._assembling = bool(self._waiting and self._idle)
        if self._assembling:
            self._waiting[0].leads = True
            self._waiting[0].called.release()

    def _assemble(self, mine: QueuedRequest) -> list[QueuedRequest]:
        """Takes the next batch off the queue, `mine` first; none if `mine` waits for too long."""
        until = mine.begun_ns + self._policy.max_delay_ns
        while True:
            now = time.monotonic_ns()
            if mine.deadline_ns and now >= mine.deadline_ns:
                self._waiting.popleft()
                return []
            sizes, closed = self._head()
            count = self._policy.ready(sizes, closed=closed, overdue=self._hurried or now >= until)
            if count:
                return [self._take(now) for _ in range(count)]
            self._enough = self._policy.next_size(sum(sizes))
            self._joined.wait(_seconds_until(min(until, mine.deadline_ns or until)))
            self._enough = 0

    def _take(self, now: int) -> QueuedRequest:
        taken = self._waiting.popleft()
        taken.taken_ns = now
        return taken

    def _head(self) -> tuple[list[int], bool]:
        """The samples of the requests at the head that can run together, and whether the next one cannot join."""
        first = self._waiting[0]
        sizes, total = [first.samples], first.samples
        for each in islice(self._waiting, 1, None):
            total += each.samples
            if total > self._policy.max_batch_size or each.together != first.together:
                return sizes, True
            sizes.append(each.samples)
        return sizes, self._policy.max_batch_size == 0

    def _answer(self, instance: int, batch: list[QueuedRequest]) -> None:
        try:
            for each, answer in zip(batch, self._run(instance, batch), strict=True):
                each.answer = answer
        except MoonfedError as error:
            for each in batch:
                each.error = error
        except BaseException:
            for each in batch:
                each.error = MoonfedError("the batch could not be run; the server's log says more")
            raise


def _seconds_until(moment_ns: int) -> float:
    return max(0.0, (moment_ns - time.monotonic_ns()) / 1e9)


def _too_late() -> Unavailable:
    return Unavailable("Request timeout expired")
