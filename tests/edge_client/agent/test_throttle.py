"""The limit on bytes per second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.edge_client.agent.stream_timeout import replies_while
from moonfed.edge_client.agent.throttle import Throttle, throttled
from moonfed.errors import Unavailable
from moonfed.v1 import blob_pb2
from tests.support.clock import Clock


class Replies:
    """Chunks as a call yields them."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.cancelled = sizes, False

    def __iter__(self) -> Replies:
        return self

    def __next__(self) -> blob_pb2.Chunk:
        if not self.sizes:
            raise StopIteration
        return blob_pb2.Chunk(data=bytes(self.sizes.pop(0)))

    def cancel(self) -> None:
        self.cancelled = True


@given(
    rate=st.integers(1000, 10_000_000),
    work=st.lists(st.tuples(st.integers(1, 1 << 20), st.floats(0, 0.2)), min_size=1, max_size=50),
)
def test_no_stretch_of_time_sees_more_than_its_rate_and_the_parts_at_its_ends(
    rate: int, work: list[tuple[int, float]]
) -> None:
    clock = Clock(1000.0)
    throttle = Throttle(rate, clock)
    moved: list[tuple[float, int]] = []
    for size, seconds in work:
        clock.sleep(seconds)  # what moving it took by itself
        moved.append((clock.now, size))
        clock.sleep(throttle.consume(size))
    for first, (start, _) in enumerate(moved):
        for last in range(first, len(moved)):
            end = moved[last][0]
            between = sum(size for _, size in moved[first + 1 : last])
            assert between <= rate * (end - start) + 1e-3 * rate


def test_a_line_that_is_slower_than_the_bound_is_not_slowed_further() -> None:
    clock = Clock(1000.0)
    throttle = Throttle(1000, clock)
    for _ in range(50):
        clock.sleep(1.1)
        assert throttle.consume(1000) == 0


def test_a_late_wake_up_is_compensated() -> None:
    clock = Clock(1000.0)
    throttle = Throttle(1000, clock)
    for _ in range(100):
        clock.sleep(throttle.consume(100) + 0.03)
    assert clock.now - 1000.0 == pytest.approx(10.0, abs=0.04)


@pytest.mark.parametrize(("rate", "size"), [(1000, 4096), (100_000, 25_000), (3_000_000, 750_000), (10**9, 1 << 20)])
def test_parts_are_small_at_a_low_rate(rate: int, size: int) -> None:
    assert Throttle(rate).part_size == size


def test_chunks_come_at_the_rate() -> None:
    clock = Clock(1000.0)
    replies = Replies([10_000] * 20)
    chunks = list(throttled(replies_while(replies, lambda: True), Throttle(50_000, clock), lambda: True, clock.sleep))
    assert len(chunks) == 20
    assert clock.now - 1000.0 == pytest.approx(20 * 10_000 / 50_000)


def test_an_unneeded_slow_transfer_ends_within_a_second() -> None:
    clock = Clock(1000.0)
    replies = Replies([1_000_000] * 3)
    chunks = throttled(
        replies_while(replies, lambda: True), Throttle(1000, clock), lambda: clock.now < 1010, clock.sleep
    )
    next(chunks)
    with pytest.raises(Unavailable, match="no longer needed"):
        next(chunks)
    assert 1010 <= clock.now <= 1011
    assert replies.cancelled
