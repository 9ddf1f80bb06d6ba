"""A round's trace: its wait, its assignments with their outcomes, and its end, also across a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    Declined,
    End,
    Lose,
    Open,
    Progressed,
    Replace,
    Resumed,
    UpdateAccepted,
)
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.round_trace import RoundTrace
from moonfed.coordinator.support.trace_contexts import (
    assignment_context,
    assignment_traceparent,
    round_context,
    sender_context,
)
from moonfed.observability.trace_context import TraceContext, parse_traceparent
from moonfed.observability.tracing import exporting, span
from tests.support.clock import Clock
from tests.support.store_records import RUN
from tests.support.trace_collector import Collector, Received, children, running_collector

FIRST = AttemptId(run=RUN.run, round=1, attempt=1)


@pytest.fixture(scope="module")
def running() -> Iterator[Collector]:
    with running_collector() as collector, exporting(collector.address, "moonfed-test"):
        yield collector


@pytest.fixture
def collector(running: Collector) -> Collector:
    running.spans.clear()
    return running


def traced(clock: Clock, *, reports_outlive_rounds: bool = False) -> RoundTrace:
    return RoundTrace(RUN, reports_outlive_rounds=reports_outlive_rounds, clock=clock)


def command(trace: RoundTrace, command: Command) -> None:
    trace.on_step(Resumed(online={}), State(), [command])


def only(spans: list[Received], name: str, **attributes: object) -> Received:
    (found,) = (one for one in spans if one.name == name and one.attributes.items() >= attributes.items())
    return found


def test_a_round_is_a_trace_with_its_wait_its_assignments_and_its_reduction(collector: Collector) -> None:
    clock = Clock(1000.0)
    trace = traced(clock)
    clock.now = 1010.0
    command(trace, Open(round=1, attempt=1, cohort=("cam-1", "cam-2", "cam-3", "cam-4")))
    for number in (1, 2, 3, 4, 1):
        command(trace, Assign(round=1, attempt=1, device=f"cam-{number}"))
    command(trace, Replace(round=1, attempt=1, devices=("cam-5",)))
    trace.on_step(UpdateAccepted(round=1, attempt=1, device="cam-1"), State(), [])
    command(trace, Lose(round=1, attempt=1, device="cam-1"))  # it has delivered
    command(trace, Lose(round=1, attempt=1, device="cam-2"))
    command(trace, Lose(round=1, attempt=1, device="cam-3"))
    trace.on_step(Progressed(round=1, attempt=1, device="cam-3"), State(), [])
    trace.on_step(Declined(round=1, attempt=1, device="cam-3"), State(), [])
    with trace.reducing(FIRST), span("reduction"):
        pass
    clock.now = 1020.0
    trace.committed(FIRST, updates=1, incidents=0)

    spans = collector.until_named("round")
    root = only(spans, "round")
    context = round_context(RUN, FIRST)
    assert (root.trace, root.id, root.parent, root.began) == (context.trace_id, context.span_id, "", 1000.0)
    assert root.attributes == {
        **FIRST.log_fields, "cohort": 4, "reused": 0, "outcome": "committed", "updates": 1, "incidents": 0,
    }  # fmt: skip
    assert (root.failed, root.events) == (False, ("devices joined",))
    within = children(spans, root)
    assert sorted(one.name for one in within) == ["assignment"] * 4 + ["reduction", "waiting"]
    assert only(within, "waiting").began == 1000.0
    outcomes = {
        one.attributes["device"]: (one.attributes["outcome"], one.failed, one.events)
        for one in within
        if one.name == "assignment"
    }
    assert outcomes == {
        "cam-1": ("accepted", False, ("assigned again",)),
        "cam-2": ("lost", True, ("lost",)),
        "cam-3": ("declined", True, ("lost", "makes progress again")),
        "cam-4": ("missing", True, ()),
    }
    assert only(within, "assignment", device="cam-4").id == assignment_context(RUN, FIRST, "cam-4").span_id


def test_an_abandoned_attempt_and_the_next_one_are_two_traces(collector: Collector) -> None:
    clock = Clock(1000.0)
    trace = traced(clock)
    command(trace, Open(round=1, attempt=1, cohort=("cam-1",)))
    clock.now = 1005.0
    command(trace, Abandon(round=1, attempt=1, missing=("cam-1",), reason="by the deadline; late: cam-1"))
    command(trace, Open(round=1, attempt=2, cohort=("cam-1",)))
    trace.committed(replace(FIRST, attempt=2), updates=1, incidents=0)
    spans = collector.until(lambda spans: sum(one.name == "round" for one in spans) == 2)
    first, second = (only(spans, "round", attempt=attempt) for attempt in (1, 2))
    assert (first.attributes["outcome"], first.failed) == ("abandoned", True)
    assert first.attributes["reason"] == "by the deadline; late: cam-1"
    assert first.trace != second.trace
    assert second.began == 1005.0, "it has waited since then"


def test_a_restarted_coordinator_ends_the_round_that_it_resumes(collector: Collector) -> None:
    before = traced(Clock(1000.0))
    command(before, Open(round=1, attempt=1, cohort=("cam-1",)))
    after = traced(Clock(2000.0))
    after.resume(FIRST, opened=1001.0)
    command(after, Assign(round=1, attempt=1, device="cam-1"))
    after.on_step(UpdateAccepted(round=1, attempt=1, device="cam-1"), State(), [])
    after.committed(FIRST, updates=1, incidents=0)
    spans = collector.until_named("round", "waiting")
    root = only(spans, "round")
    assert root.began == 1001.0
    assert {one.name for one in children(spans, root)} == {"waiting", "assignment"}, "of both processes"


def test_assignments_of_an_asynchronous_run_outlive_their_round(collector: Collector) -> None:
    trace = traced(Clock(1000.0), reports_outlive_rounds=True)
    command(trace, Open(round=1, attempt=1, cohort=()))
    for device in ("cam-1", "cam-2"):
        command(trace, Assign(round=1, attempt=1, device=device))
    trace.committed(FIRST, updates=1, incidents=0)
    collector.until_named("round")
    trace.on_step(UpdateAccepted(round=1, attempt=1, device="cam-1"), State(), [])
    command(trace, End(status="finished"))
    spans = collector.until(lambda spans: sum(one.name == "assignment" for one in spans) == 2)
    within = children(spans, only(spans, "round"))
    assert only(within, "assignment", device="cam-1").attributes["outcome"] == "accepted"
    assert only(within, "assignment", device="cam-2").attributes["outcome"] == "ended"


@pytest.mark.usefixtures("running")
def test_a_context_from_a_device_counts_only_within_the_rounds_trace() -> None:
    assigned = assignment_context(RUN, FIRST, "cam-1")
    assert parse_traceparent(assignment_traceparent(RUN, FIRST, "cam-1")) == assigned
    own = TraceContext(assigned.trace_id, "b7ad6b7169203331")
    foreign = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert sender_context(RUN, FIRST, "cam-1", own.traceparent) == own
    for text in (foreign.traceparent, "", "x"):
        assert sender_context(RUN, FIRST, "cam-1", text) == assigned


def test_a_later_run_of_the_same_name_has_other_traces() -> None:
    assert round_context(RUN, FIRST) != round_context(replace(RUN, created=RUN.created + 1), FIRST)
