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
    assert (seen.holder, seen.request) == (holder.leases.holder, "")
    assert (seen.round, seen.attempt, seen.status, seen.accepted, seen.cohort) == (1, 1, "open", 0, 2)
    follower.reports.record(report("a"))
    follower.reports.record(report("b", outcome="rejected", blobs={}))
    holder.replace_devices(FIRST, ["d"])
    seen = holder.run_summaries.load()["digits"]
    assert (seen.accepted, seen.rejected, seen.declined, seen.cohort) == (1, 1, 0, 3)
    holder.begin_reducing(FIRST)
    assert holder.run_summaries.load()["digits"].status == "reducing"
    assert holder.leases.acquire("digits", 0.0)
    assert holder.run_summaries.load()["digits"].holder == ""
    with pytest.raises(NotFound):
        follower.run_summaries.request("unknown", "stop")


def test_a_fulfilled_request_to_pause_is_over_and_one_to_stop_stays(two: Two) -> None:
    holder, follower = two
    follower.run_summaries.request("digits", "pause")
    assert holder.run_summaries.load()["digits"].request == "pause"
    follower.run_summaries.request("digits", "resume")
    assert holder.run_summaries.load()["digits"].request == "resume", "the latest counts"
    holder.set_paused("digits", paused=True)
    seen = holder.run_summaries.load()["digits"]
    assert (seen.request, seen.run_status) == ("", "paused")
    follower.run_summaries.request("digits", "stop")
    follower.run_summaries.request("digits", "resume")
    holder.set_paused("digits", paused=False)
    seen = holder.run_summaries.load()["digits"]
    assert (seen.request, seen.run_status) == ("stop", "running")


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
