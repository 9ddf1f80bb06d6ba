"""The dynamic batcher: a bounded queue whose requests run together, as Triton's dynamic_batching specifies.

It has no threads of its own. The request at the head of the queue becomes the leader once an instance is free: its
thread assembles the next batch, runs it and distributes the outputs, while the next request in the queue takes the
lead. So a request that finds the queue empty and an instance idle runs at once on its own thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from moonfed.errors import MoonfedError, Overloaded, Unavailable
from moonfed.serving.models.inference_request import Array

Feeds = Mapping[str, Array]
BatchOutputs = list[Mapping[str, Array]]  # one entry per request


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """Scheduling of requests: when they run, and how many together; times in nanoseconds, 0 for none."""

    max_batch_size: int  # samples; 0: requests never run together
    preferred: frozenset[int] = frozenset()
    max_delay_ns: int = 0
    max_queue_size: int = 0  # requests; 0: unlimited
    default_timeout_ns: int = 0
    allow_timeout_override: bool = False

    @property
    def limit(self) -> int:
        """The size at which a batch runs without waiting for more requests."""
        return max(self.preferred, default=self.max_batch_size)

    def timeout_ns(self, requested_ns: int) -> int:
        """Return how long a request may be queued; a request can shorten the default, not extend it."""
        if self.allow_timeout_override and 0 < requested_ns < self.default_timeout_ns:
            return requested_ns
        return self.default_timeout_ns

    def runnable(self, sizes: Sequence[int], *, closed: bool, overdue: bool) -> int:
        """Return how many requests at the head of the queue to run now; 0 means to wait for more.

        `sizes`: samples of the requests that could run together; `closed`: the next request cannot join them;
        `overdue`: the first request has waited for the maximum delay.
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
        """Return the number of queued samples at which `runnable` may decide otherwise."""
        return min((size for size in self.preferred if size > total), default=self.limit)


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedRequest:
    """A request in the queue."""

    feeds: Feeds
    names: tuple[str, ...]  # of the outputs to compute
    samples: int
    arrived_ns: int
    sample_shapes: Mapping[str, tuple[int, ...]]  # requests with different ones do not run together
    deadline_ns: int
    is_leader: bool = False
    dequeued_ns: int = 0
    outputs: Mapping[str, Array] | None = None
    error: MoonfedError | None = None
    wakeup: threading.Lock = field(default_factory=threading.Lock)  # released when done or when it becomes the leader


class Batcher:
    """The queue of one version; `run(instance, batch)` computes a batch's outputs or raises MoonfedError."""

    def __init__(
        self, policy: BatchPolicy, instances: int, run: Callable[[int, Sequence[QueuedRequest]], BatchOutputs]
    ) -> None:
        self._policy = policy
        self._run = run
        self._lock = threading.Lock()
        self._joined = threading.Condition(self._lock)  # a request joined, as far as the leader cares
        # Invariant: if the queue holds a request and an instance is idle, the queue's head is the leader.
        self._queue: deque[QueuedRequest] = deque()
        self._idle = list(range(instances))
        self._has_leader = False
        self._flushing = False
        self._wake_size = 0  # queued samples at which a waiting leader decides again; 0: it does not wait

    def queued(self) -> int:
        """Return how many requests wait for an instance."""
        return len(self._queue)

    def flush(self) -> None:
        """Stop waiting for fuller batches: no more requests will come."""
        with self._lock:
            self._flushing = True
            self._joined.notify()

    def infer(
        self, feeds: Feeds, names: tuple[str, ...], samples: int, arrived_ns: int, timeout_ns: int
    ) -> Mapping[str, Array]:
        """Compute a request's outputs; raise Overloaded if the queue is full, Unavailable after the timeout."""
        timeout = self._policy.timeout_ns(timeout_ns)
        request = QueuedRequest(
            feeds=feeds,
            names=names,
            samples=samples,
            arrived_ns=arrived_ns,
            sample_shapes={name: array.shape[1:] for name, array in feeds.items()},
            deadline_ns=arrived_ns + timeout if timeout else 0,
        )
        request.wakeup.acquire()
        instance = self._enter(request)
        if instance is not None:
            self._run_on(instance, [request])
        elif not request.is_leader:
            self._wait(request)
        if request.is_leader:
            self._lead(request)
        if request.error is not None:
            raise type(request.error)(str(request.error))  # a copy each: a traceback grows with every raise
        assert request.outputs is not None  # noqa: S101
        return request.outputs

    def _enter(self, request: QueuedRequest) -> int | None:
        """Return an idle instance if the request can run at once and alone; otherwise queue the request."""
        with self._lock:
            if self._idle and not self._queue and not self._policy.max_delay_ns:
                return self._idle.pop()
            if self._policy.max_queue_size and len(self._queue) >= self._policy.max_queue_size:
                raise Overloaded("Exceeds maximum queue size")
            self._queue.append(request)
            if self._has_leader:
                self._notify_leader(request)
            elif self._idle:
                self._has_leader = request.is_leader = True
        return None

    def _notify_leader(self, joined: QueuedRequest) -> None:
        if self._wake_size and (
            joined.sample_shapes != self._queue[0].sample_shapes
            or sum(request.samples for request in self._queue) >= self._wake_size
        ):
            self._joined.notify()

    def _wait(self, request: QueuedRequest) -> None:
        """Wait until the request has its outputs or becomes the leader."""
        if not request.deadline_ns:
            request.wakeup.acquire()
            return
        if request.wakeup.acquire(timeout=_seconds_until(request.deadline_ns)):
            return
        with self._lock:
            if not (request.is_leader or request.dequeued_ns):
                self._queue.remove(request)
                raise _timed_out()
        request.wakeup.acquire()  # its turn came at the same moment

    def _lead(self, leader: QueuedRequest) -> None:
        with self._lock:
            batch = self._assemble(leader)
            instance = self._idle.pop() if batch else -1
            self._appoint_leader()
        if not batch:
            raise _timed_out()
        try:
            self._run_on(instance, batch)
        finally:
            for request in batch:
                if request is not leader:
                    request.wakeup.release()

    def _run_on(self, instance: int, batch: list[QueuedRequest]) -> None:
        try:
            self._compute(instance, batch)
        finally:
            with self._lock:
                self._idle.append(instance)
                if self._queue and not self._has_leader:
                    self._appoint_leader()

    def _appoint_leader(self) -> None:
        self._has_leader = bool(self._queue and self._idle)
        if self._has_leader:
            self._queue[0].is_leader = True
            self._queue[0].wakeup.release()

    def _assemble(self, leader: QueuedRequest) -> list[QueuedRequest]:
        """Dequeue the next batch, the leader first; return an empty one if the leader times out."""
        until = leader.arrived_ns + self._policy.max_delay_ns
        while True:
            now = time.monotonic_ns()
            if leader.deadline_ns and now >= leader.deadline_ns:
                self._queue.popleft()
                return []
            sizes, closed = self._head()
            count = self._policy.runnable(sizes, closed=closed, overdue=self._flushing or now >= until)
            if count:
                return [self._dequeue(now) for _ in range(count)]
            self._wake_size = self._policy.next_size(sum(sizes))
            self._joined.wait(_seconds_until(min(until, leader.deadline_ns or until)))
            self._wake_size = 0

    def _dequeue(self, now: int) -> QueuedRequest:
        request = self._queue.popleft()
        request.dequeued_ns = now
        return request

    def _head(self) -> tuple[list[int], bool]:
        """Return the sizes of the requests at the head that can run together, and whether the next one cannot join."""
        first = self._queue[0]
        sizes, total = [first.samples], first.samples
        for request in islice(self._queue, 1, None):
            total += request.samples
            if total > self._policy.max_batch_size or request.sample_shapes != first.sample_shapes:
                return sizes, True
            sizes.append(request.samples)
        return sizes, self._policy.max_batch_size == 0

    def _compute(self, instance: int, batch: list[QueuedRequest]) -> None:
        try:
            for request, outputs in zip(batch, self._run(instance, batch), strict=True):
                request.outputs = outputs
        except MoonfedError as error:
            for request in batch:
                request.error = error
        except BaseException:
            for request in batch:
                request.error = MoonfedError("the batch failed; the server's log has the details")
            raise


def _seconds_until(moment_ns: int) -> float:
    return max(0.0, (moment_ns - time.monotonic_ns()) / 1e9)


def _timed_out() -> Unavailable:
    return Unavailable("Request timeout expired")
