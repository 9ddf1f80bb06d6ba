"""The result of each device in an attempt that ends, and its number of counted rounds.

A device that has the name of one that was removed or renamed had no part in its rounds. Each function is part of the
transaction that ends a round.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sql

from moonfed.control.devices import DeviceOutcome
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import MAX_REASON, AttemptId, AttemptMeasurements
from moonfed.coordinator.storage import device_outcomes
from moonfed.coordinator.storage.db import row_mapping, tables

_devices = tables.devices.c
_reports = tables.reports.c
_participants = tables.participants.c
_of_devices = _devices.device.in_(sql.bindparam("of_devices", expanding=True))
_of_attempt = row_mapping.of_attempt(tables.reports)
_COHORT = sql.select(tables.rounds.c.cohort, tables.rounds.c.reused).where(row_mapping.of_attempt(tables.rounds))
_REPORTS = sql.select(_reports.device, _reports.outcome, _reports.reason).where(_of_attempt)
_LOCK = sql.select(_devices.device).where(_of_devices).order_by(_devices.device).with_for_update()
_of_run = _participants.run == sql.bindparam("of_run")
_PRESENT = sql.select(_participants.device).where(
    _of_run, _participants.device.in_(sql.bindparam("of_devices", expanding=True))
)
_participant = sql.exists().where(_of_run, _participants.device == _devices.device)
_CHANGE = sql.update(tables.devices).where(_of_devices, _participant)
_COUNT_ROUND = _CHANGE.values(rounds=_devices.rounds + 1)
_Outcomes = dict[str, tuple[DeviceOutcome, str]]  # outcome and reason by device


def committed(
    connection: sql.Connection,
    attempt: AttemptId,
    counted: Sequence[str],
    incidents: Sequence[Incident],
    measured: AttemptMeasurements,
    *,
    asynchronous: bool,
) -> dict[str, int]:
    """Record the results of a committed round; return the number of devices by outcome.

    The devices without an update still train if it is `asynchronous`.
    """
    outcomes = dict(measured.undelivered) if asynchronous else _of_cohort(connection, attempt, measured)
    outcomes |= dict.fromkeys(counted, ("counted", ""))
    for device, reason in _descriptions(incidents).items():
        outcomes[device] = "incident", reason
    numbers = _record(connection, attempt, outcomes, measured.training)
    connection.execute(_COUNT_ROUND, {"of_devices": sorted(counted), "of_run": attempt.run})
    return numbers


def abandoned(
    connection: sql.Connection, attempt: AttemptId, reusable: Collection[str], measured: AttemptMeasurements
) -> dict[str, int]:
    """Record the results of an abandoned attempt; return the number of devices by outcome.

    `reusable`: the devices whose updates the next attempt may count.
    """
    outcomes = _of_cohort(connection, attempt, measured) | dict.fromkeys(reusable, ("abandoned", ""))
    return _record(connection, attempt, outcomes, measured.training)


def _of_cohort(connection: sql.Connection, attempt: AttemptId, measured: AttemptMeasurements) -> _Outcomes:
    """Return the outcome of every device of the cohort as if no round were committed."""
    which = row_mapping.parameters(attempt)
    found = connection.execute(_COHORT, which).one()
    outcomes: _Outcomes = dict.fromkeys(found.cohort, ("missing", ""))
    outcomes |= dict.fromkeys(found.reused, ("abandoned", "")) | dict(measured.undelivered)
    for row in connection.execute(_REPORTS, which):
        outcomes[row.device] = ("abandoned", "") if row.outcome == "accepted" else (row.outcome, row.reason)
    return outcomes


def _descriptions(incidents: Sequence[Incident]) -> dict[str, str]:
    found: dict[str, str] = {}
    for incident in incidents:
        earlier = f"{found[incident.device]}; " if incident.device in found else ""
        found[incident.device] = (earlier + incident.description)[:MAX_REASON]
    return found


def _record(
    connection: sql.Connection, attempt: AttemptId, outcomes: _Outcomes, training: Mapping[str, float]
) -> dict[str, int]:
    which = {"of_devices": sorted(outcomes), "of_run": attempt.run}
    connection.execute(_LOCK, which)  # in one order: runs end rounds concurrently
    present = connection.execute(_PRESENT, which).scalars().all()
    now = time.time()
    device_outcomes.add(connection, attempt, {device: outcomes[device] for device in present}, training, now)
    for (outcome, reason), devices in _by_outcome(outcomes).items():
        result = {**row_mapping.key(attempt), "outcome": outcome, "reason": reason, "time": now, "seconds": 0.0}
        change = {"of_devices": sorted(devices), "of_run": attempt.run, "last_result": result}
        connection.execute(_CHANGE, change)
    return dict(Counter(outcome for outcome, _ in outcomes.values()))


def _by_outcome(outcomes: _Outcomes) -> dict[tuple[DeviceOutcome, str], list[str]]:
    """Group devices by outcome and reason: their last results differ in nothing else, except the training time."""
    groups: dict[tuple[DeviceOutcome, str], list[str]] = {}
    for device, outcome in outcomes.items():
        groups.setdefault(outcome, []).append(device)
    return groups
