"""The choice of a run's round protocol, and the properties that the rest of the coordinator relies on."""

from __future__ import annotations

from dataclasses import replace

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.fedbuff_state import FedBuffState
from moonfed.coordinator.rounds.protocol import FEDBUFF, SYNCHRONOUS, round_protocol
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.errors import InvalidInput
from tests.support.aggregation_rounds import make_manifest, scaffold
from tests.support.refusals import refused

BUFFERED = RunSettings(rounds=9, asynchronous=2, max_staleness=3)


def test_only_a_run_with_a_buffer_is_asynchronous() -> None:
    assert round_protocol(RunSettings(rounds=1)) is SYNCHRONOUS
    assert round_protocol(BUFFERED) is FEDBUFF


def test_a_synchronous_run_needs_only_its_open_attempt() -> None:
    settings = RunSettings(rounds=3)
    assert SYNCHRONOUS.needed_attempts(settings, State(committed=2)) == frozenset()
    current = OpenRound(round=3, attempt=2, cohort=("a",))
    assert SYNCHRONOUS.needed_attempts(settings, State(committed=2, attempt=2, open=current)) == {(3, 2)}


def test_an_asynchronous_run_needs_every_round_that_an_update_may_have_begun_with() -> None:
    assert FEDBUFF.needed_attempts(BUFFERED, FedBuffState(committed=1)) == {(1, 1), (2, 1)}
    assert FEDBUFF.needed_attempts(BUFFERED, FedBuffState(committed=6)) == {(4, 1), (5, 1), (6, 1), (7, 1)}
    assert FEDBUFF.needed_attempts(BUFFERED, FedBuffState(committed=6, status="stopped")) == frozenset()


def test_an_update_is_awaited_of_every_device_that_has_neither_delivered_nor_declined() -> None:
    devices = {"reported": {"a"}, "rejected": {"b"}, "declined": {"c"}, "lost": {"d"}, "left": {"e"}}
    outcomes = {outcome: frozenset(names) for outcome, names in devices.items()}
    current = OpenRound(round=3, attempt=2, cohort=tuple("abcdef"), **outcomes)  # type: ignore[arg-type]
    state = State(committed=2, attempt=2, open=current)
    assert SYNCHRONOUS.awaited(state) == dict.fromkeys("bdef", (3, 2))
    assert SYNCHRONOUS.awaited(replace(state, open=replace(current, reducing=True))) == {}
    assert SYNCHRONOUS.awaited(State()) == {}
    training = FedBuffState(committed=6, tasks={"a": 5, "b": 7}, lost=frozenset("b"), buffer={"c": 7})
    assert FEDBUFF.awaited(training) == {"a": (5, 1), "b": (7, 1)}


def test_an_asynchronous_run_rejects_methods_that_exchange_more_than_models() -> None:
    for protocol in (SYNCHRONOUS, FEDBUFF):
        protocol.check_manifest(make_manifest())
    SYNCHRONOUS.check_manifest(scaffold())
    with refused(InvalidInput, "method", "scaffold"):
        FEDBUFF.check_manifest(scaffold())
