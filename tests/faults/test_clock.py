"""A wall clock that jumps, races or falls behind: only the displayed times change."""

from __future__ import annotations

import time

import pytest

from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, whole_run
from tests.faults.program import Clock
from tests.support.coordinator import Device

pytestmark = pytest.mark.slow

BUNDLE = bundle_of(50)
SECONDS = 1.0  # of a deadline, or of a heartbeat timeout


def test_rounds_complete_and_none_has_a_negative_duration(coordinators: Coordinators) -> None:
    coordinators.serve()
    coordinators.start_run("steady", BUNDLE, 10, len(SAMPLES))
    with devices_at(coordinators):
        undisturbed = coordinators.finished("steady").model
        coordinators.kill()
        coordinators.serve(clock="jumping")
        coordinators.start_run("jumping", BUNDLE, 10, len(SAMPLES))
        assert coordinators.finished("jumping").model == undisturbed
    whole_run(coordinators, "jumping", 10)
    assert all(entry.seconds >= 0 for entry in coordinators.rounds("jumping"))


@pytest.mark.parametrize("clock", ["racing", "falling"])
@pytest.mark.parametrize("field", ["deadline", "heartbeat_timeout"])
def test_a_round_waits_for_its_configured_time(coordinators: Coordinators, field: str, clock: Clock) -> None:
    coordinators.serve(clock=clock)
    coordinators.start_run("r", BUNDLE, 1, 1, **{field: SECONDS})
    identity = load_identity(coordinators.tmp / "cam-1")
    calls = coordinators.operator()
    with calls.channel, transport.open_channel(identity.address, identity) as channel:
        events = calls.watch("r")
        begun = time.monotonic()
        session = Device("cam-1", channel).connect()
        assert session.assignment().attempt == 1
        while next(events).kind != "round_abandoned":
            pass
        assert time.monotonic() - begun >= SECONDS
        session.leave()
