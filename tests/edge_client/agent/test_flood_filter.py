"""The agent's log is bounded in the number of lines of each kind, and in their length."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from moonfed.edge_client.agent.flood_filter import LENGTH, WORK, FloodFilter
from moonfed.observability.flood_limit import EVENTS, PERIOD_SECONDS
from tests.support.clock import Clock

LOG = logging.getLogger("tested.agent")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> Iterator[list[str]]:
    handler = Lines()
    handler.addFilter(FloodFilter(clock))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler.lines
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize(("level", "most"), [(logging.INFO, WORK), (logging.WARNING, EVENTS), (logging.ERROR, EVENTS)])
def test_a_kind_of_line_gets_a_few_lines_and_then_a_count(
    level: int, most: int, clock: Clock, lines: list[str]
) -> None:
    for number in range(1000):
        LOG.log(level, "run %s: declined: %.1f", f"name-{number}", 0.5)
    LOG.log(level, "something else")
    assert lines == [*(f"run name-{number}: declined: 0.5" for number in range(most)), "something else"]
    lines.clear()
    clock.now += PERIOD_SECONDS
    LOG.log(level, "later")
    assert lines == [f"run \u2026: declined: \u2026: {1000 - most} more such lines in 60 s", "later"]


@pytest.mark.parametrize("length", [LENGTH + 1, 10 * LENGTH, 1 << 20])
def test_long_lines_are_cut(length: int, lines: list[str]) -> None:
    LOG.warning("reason: %s", "x" * length)
    LOG.warning("reason: %s", "short")
    assert len(lines[0]) == LENGTH + 1
    assert lines[1] == "reason: short"
