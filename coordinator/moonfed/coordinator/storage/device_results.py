"""Each device's part in its last round that ended, and its number of counted rounds, for the list of devices.

A device that has the name of one that was removed or renamed had no part in its rounds. Each function is part of the
transaction that ends a round.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sql

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.db import row_mapping, tables

_devices, _reports = tables.devices.c, tables.reports.c
_of_devices = _devices.device.in_(sql.bindparam("of_devices", expanding=True))
_of_attempt = row_mapping.of_attempt(tables.reports)
_COHORT = sql.select(tables.rounds.c.cohort).where(row_mapping.of_attempt(tables.rounds))
_NOT_ACCEPTED = sql.select(_reports.device, _reports.outcome, _reports.reason).where(
    _of_attempt, _reports.outcome != "accepted"
)
_ACCEPTED = sql.select(_reports.device).where(_of_attempt, _reports.outcome == "accepted")
_LOCK = sql.select(_devices.device).where(_of_devices).order_by(_devices.device).with_for_update()
_participant = sql.exists().where(
    tables.participants.c.run == sql.bindparam("of_run"), tables.participants.c.device == _devices.device
)
_CHANGE = sql.update(tables.devices).where(_of_devices, _participant)
_COUNT_ROUND = _CHANGE.values(rounds=_devices.rounds + 1)
_Outcome = tuple[str, str]  # outcome and reason


def committed(
    connection: sql.Connection, attempt: AttemptId, counted: Sequence[str], *, asynchronous: bool = False
) -> None:
    """Record the results of a committed round; the devices without an update still train if it is asynchronous."""
    outcomes: dict[str, _Outcome] = {} if asynchronous else _failures(connection, attempt)
    _record(connection, attempt, outcomes | dict.fromkeys(counted, ("counted", "")))
    connection.execute(_COUNT_ROUND, {"of_devices": sorted(counted), "of_run": attempt.run})


def abandoned(connection: sql.Connection, attempt: AttemptId) -> int:
    """Record the results of an abandoned attempt; return the number of its accepted updates."""
    accepted = connection.execute(_ACCEPTED, row_mapping.parameters(attempt)).scalars().all()
    outcomes = _failures(connection, attempt) | dict.fromkeys(accepted, ("abandoned", ""))
    _record(connection, attempt, outcomes)
    return len(accepted)


def _failures(connection: sql.Connection, attempt: AttemptId) -> dict[str, _Outcome]:
    """Return the outcome of every device of the cohort as if none had delivered an update."""
    which = row_mapping.parameters(attempt)
    outcomes = dict.fromkeys(connection.execute(_COHORT, which).scalar_one(), ("missing", ""))
    return outcomes | {row.device: (row.outcome, row.reason) for row in connection.execute(_NOT_ACCEPTED, which)}


def _record(connection: sql.Connection, attempt: AttemptId, outcomes: Mapping[str, _Outcome]) -> None:
    connection.execute(_LOCK, {"of_devices": sorted(outcomes)})  # in one order: runs end rounds concurrently
    now = time.time()
    for (outcome, reason), devices in _by_outcome(outcomes.items()).items():
        result = {**row_mapping.key(attempt), "outcome": outcome, "reason": reason, "time": now}
        which = {"of_devices": sorted(devices), "of_run": attempt.run}
        connection.execute(_CHANGE, {**which, "last_result": result})


def _by_outcome(outcomes: Iterable[tuple[str, _Outcome]]) -> dict[_Outcome, list[str]]:
    groups: dict[_Outcome, list[str]] = {}
    for device, outcome in outcomes:
        groups.setdefault(outcome, []).append(device)
    return groups
