"""Fault 121 of docs/faults.md over real TLS: the default bounds hold however many devices of the cohort are missing.

A malicious device claims ten million samples for a model of sevens; honest ones move by a hundredth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moonfed.coordinator.aggregation.robust.config import DEFAULT_CLIP_FACTOR, DEFAULT_WEIGHT_CAP
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import Device, DeviceSession, ask, model_bytes, model_values

DEFAULTS = {"weight_cap": DEFAULT_WEIGHT_CAP, "clip_factor": DEFAULT_CLIP_FACTOR}
HONEST, MALICIOUS, CLAIMED = 0.01, 7.0, 10_000_000
MOST = HONEST * DEFAULT_CLIP_FACTOR * (1 + 1e-5)  # the longest change that the default bounds permit
Absence = Callable[[Device, DeviceSession, fleet_pb2.Assignment], None]


def declines(device: Device, session: DeviceSession, work: fleet_pb2.Assignment) -> None:
    request = fleet_pb2.DeclineRequest(
        device=device.name, run=work.run, round=work.round, attempt=work.attempt, reason="busy"
    )
    ask(device.fleet.Decline, request)


def leaves(device: Device, session: DeviceSession, work: fleet_pb2.Assignment) -> None:
    ask(device.fleet.Leave, fleet_pb2.LeaveRequest(device=device.name))


def is_lost(device: Device, session: DeviceSession, work: fleet_pb2.Assignment) -> None:
    session.leave()


def is_late(device: Device, session: DeviceSession, work: fleet_pb2.Assignment) -> None:
    """Stay connected without an update until the deadline."""


def is_rejected(device: Device, session: DeviceSession, work: fleet_pb2.Assignment) -> None:
    with pytest.raises(Exception, match="NaN"):
        device.submit(work, model_bytes(float("nan")), samples=CLAIMED)


def attacked_round(fleet: Fleet, number: int, absent: int, absence: Absence, **fields: Any) -> float:
    """Play a round in which the last device of several is malicious and the first ones are absent; its largest change.

    Every device sends its update, or is absent, in that order.
    """
    devices = [fleet.device(f"cam-{place}") for place in range(number)]
    fleet.start(minimum_devices=number, **(fields if "weight_cap" in fields else {**DEFAULTS, **fields}))
    sessions = [device.connect() for device in devices]
    work = [session.assignment() for session in sessions]
    for place, device in enumerate(devices[:absent]):
        absence(device, sessions[place], work[place])
    for place, device in enumerate(devices[absent:-1], absent):
        device.submit(work[place], model_bytes(HONEST), samples=50)
    devices[-1].submit(work[-1], model_bytes(MALICIOUS), samples=CLAIMED)
    list(fleet.operator.watch("run"))
    (played,) = fleet.operator.rounds("run")
    assert len(played.counted) == number - absent, "the malicious update counted"
    return float(np.abs(model_values(fleet.operator.model(fleet.operator.run("run").model))).max())


QUORUM_OF_TWO = {"quorum": 2}
SOON = {"deadline": 1.5, **QUORUM_OF_TWO}


@pytest.mark.parametrize(
    ("absent", "absence", "fields"),
    [
        (0, declines, {}),
        (1, declines, {}),
        (3, declines, QUORUM_OF_TWO),
        (1, leaves, SOON),
        (3, is_lost, {"heartbeat_timeout": 1.0, **QUORUM_OF_TWO}),
        (3, is_late, SOON),
        (2, is_rejected, QUORUM_OF_TWO),
    ],
    ids=["nobody", "one declines", "three decline", "one leaves", "three are lost", "three are late", "two rejected"],
)
def test_missing_devices_do_not_free_a_malicious_one_of_its_bounds(
    fleet: Fleet, absent: int, absence: Absence, fields: dict[str, Any]
) -> None:
    assert attacked_round(fleet, 5, absent, absence, **fields) <= MOST


def test_the_bounds_of_an_over_selected_cohort_are_those_of_the_cohort(fleet: Fleet) -> None:
    """Six devices are drawn for a cohort of five; three of them decline, and two more are too late."""
    five = {"cohort": 5, "over_selection": 0.2, **QUORUM_OF_TWO}
    moved = attacked_round(fleet, 6, 4, declines, weight_cap=1.5, **five)
    assert moved == pytest.approx(0.3 * MALICIOUS + 0.3 * HONEST, rel=1e-5)


@pytest.mark.parametrize(("absent", "share"), [(0, 0.3), (1, 0.3), (3, 0.3)])
def test_missing_devices_leave_a_malicious_one_no_more_weight(fleet: Fleet, absent: int, share: float) -> None:
    moved = attacked_round(fleet, 5, absent, declines, weight_cap=1.5, **QUORUM_OF_TWO)
    honest = min(1 - share, (4 - absent) * 0.3)
    assert moved == pytest.approx(share * MALICIOUS + honest * HONEST, rel=1e-5)


def test_an_asynchronous_buffer_that_is_not_full_is_bounded_as_a_full_one(fleet: Fleet) -> None:
    assert attacked_round(fleet, 5, 3, is_late, asynchronous=5, max_staleness=5, **SOON) <= MOST
