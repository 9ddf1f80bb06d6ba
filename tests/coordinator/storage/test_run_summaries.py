"""Summaries of running runs that replicas poll."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound
from tests.support.store_records import FIRST, RUN, report

Two = tuple[Store, Store]


def test_a_poll_returns_each_runs_holder_and_position(two: Two) -> None:
    holder, follower = two
    seen = follower.run_summaries.load()["digits"]
    assert (seen.holder, seen.stopping) == (holder.leases.holder, False)
    assert (seen.round, seen.attempt, seen.status, seen.accepted) == (1, 1, "open", 0)
    follower.reports.record(report("a"))
    follower.reports.record(report("b", outcome="rejected", blobs={}))
    follower.run_summaries.request_stop("digits")
    follower.run_summaries.request_stop("digits")
    seen = holder.run_summaries.load()["digits"]
    assert (seen.stopping, seen.accepted, seen.rejected, seen.declined) == (True, 1, 1, 0)
    holder.begin_reducing(FIRST)
    assert holder.run_summaries.load()["digits"].status == "reducing"
    assert holder.leases.acquire("digits", 0.0)
    assert holder.run_summaries.load()["digits"].holder == ""
    with pytest.raises(NotFound):
        follower.run_summaries.request_stop("unknown")


def test_a_poll_returns_the_newest_round_and_no_ended_run(two: Two) -> None:
    holder, follower = two
    holder.abandon_round(FIRST, "because")
    assert follower.run_summaries.load()["digits"].status == "abandoned"
    holder.open_round(replace(FIRST, attempt=2), ["a"])
    assert follower.run_summaries.load()["digits"].attempt == 2
    holder.add_run(replace(RUN, run="young"))
    assert (follower.run_summaries.load()["young"].round, follower.run_summaries.load()["young"].status) == (0, "")
    holder.end_run("digits", "stopped")
    assert list(follower.run_summaries.load()) == ["young"]
    holder.delete_run("digits")
