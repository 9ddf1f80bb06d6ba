"""Outcomes of devices in the attempts that have ended: one row per device and attempt.

A row belongs to the present owner of the name: it is renamed with the device, and deleted with it, with its run, or
once its round is no longer among the run's newest. Each function is part of a transaction, each method is one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import sqlalchemy as sql

from moonfed.control.devices import DeviceOutcome, DeviceResult
from moonfed.control.runs import RoundOutcomes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage import rounds
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore

ROUNDS_KEPT = 1000  # newest rounds of a run
LATE = "it offered its update after the round had closed"
Outcomes = Mapping[str, tuple[DeviceOutcome, str]]  # outcome and reason by device
_columns, _devices = tables.device_outcomes.c, tables.devices.c
_rounds, _participants = tables.rounds.c, tables.participants.c
_of_run = _columns.run == sql.bindparam("of_run")
_of_device = _columns.device == sql.bindparam("of_device")
_RUNS = sql.select(_participants.run).where(_participants.device == sql.bindparam("of_device"))
_KEYS = sql.select(  # of a device's rows, which are found by their rounds
    _rounds.run, _rounds.round, _rounds.attempt, sql.bindparam("of_device", type_=_columns.device.type)
).where(_rounds.run.in_(_RUNS))
_is_one_of_device = sql.tuple_(_columns.run, _columns.round, _columns.attempt, _columns.device).in_(_KEYS)
_FORGET_ROUNDS = sql.delete(tables.device_outcomes).where(_of_run, _columns.round <= sql.bindparam("newest"))
_FORGET_DEVICE = sql.delete(tables.device_outcomes).where(_is_one_of_device)
_RENAME = sql.update(tables.device_outcomes).where(_is_one_of_device)
_position = (_rounds.round, _rounds.attempt)
_by_round = tables.rounds.join(
    tables.device_outcomes,
    sql.and_(
        _columns.run == _rounds.run, _columns.round == _rounds.round, _columns.attempt == _rounds.attempt, _of_device
    ),
)
_OF_DEVICE = (
    sql.select(tables.device_outcomes)
    .select_from(_by_round)
    .where(_rounds.run == sql.bindparam("of_run"))
    .order_by(*(part.desc() for part in _position))
    .limit(sql.bindparam("limit"))
)
_OF_ROUNDS = (
    sql.select(_columns.round, _columns.attempt, _columns.device, _columns.outcome)
    .where(_of_run, _columns.round.between(sql.bindparam("first"), sql.bindparam("last")))
    .order_by(_columns.round, _columns.attempt, _columns.device)
)
_of_one = sql.and_(row_mapping.of_attempt(tables.device_outcomes), _of_device)
_UNDELIVERED = sql.select(_columns.outcome).where(_of_one, _columns.outcome.in_(("lost", "missing")))
_UNDELIVERED_HELD = _UNDELIVERED.with_for_update()
_MARK_LATE = sql.update(tables.device_outcomes).where(_of_one).values(outcome="late", reason=LATE)
_of_registered = _devices.device == sql.bindparam("of_device")
_LAST_RESULT = sql.select(_devices.last_result).where(_of_registered).with_for_update()
_SET_LAST_RESULT = sql.update(tables.devices).where(_of_registered)


class DeviceOutcomes:
    """The outcomes of devices, of all runs; see the module."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def of_device(self, device: str, limit: int) -> list[DeviceResult]:
        """Return the newest `limit` results of a device in all runs, newest first."""
        with self._transactions.read() as connection:
            of_runs = [
                connection.execute(_OF_DEVICE, {"of_device": device, "of_run": run, "limit": limit}).mappings().all()
                for run in connection.execute(_RUNS, {"of_device": device}).scalars().all()
            ]
        found = heapq.nlargest(limit, chain.from_iterable(of_runs), key=_newness)
        return [row_mapping.device_result(row) for row in found]

    def of_run(self, run: str, after: AttemptId | None, limit: int) -> list[RoundOutcomes]:
        """Return the outcomes of the next `limit` committed and abandoned attempts after `after`, in order.

        Those of a run's rounds before the last `ROUNDS_KEPT` are not kept.
        """
        with self._transactions.read() as connection:
            ended = rounds.ended(connection, run, after, limit, ROUNDS_KEPT)
            if not ended:
                return []
            span = {"of_run": run, "first": ended[0].round, "last": ended[-1].round}
            found: dict[tuple[int, int], dict[str, DeviceOutcome]] = {}
            for round_, attempt, device, outcome in connection.execute(_OF_ROUNDS, span):
                found.setdefault((round_, attempt), {})[device] = outcome
        return [replace(one, outcomes=found.get((one.round, one.attempt), {})) for one in ended]

    def record_late(self, offered: Mapping[str, AttemptId]) -> dict[str, AttemptId]:
        """Record that devices offered their update after its attempt had ended; return those of open attempts.

        Devices that did deliver an update are ignored.
        """
        with self._transactions.read() as connection:
            open_ = {device: id_ for device, id_ in offered.items() if rounds.is_under_way(connection, id_)}
            ended = {device: id_ for device, id_ in offered.items() if device not in open_}
            changes = any(_undelivered(connection, id_, device) for device, id_ in ended.items())
        if changes:
            with self._transactions.write() as connection:
                for device, id_ in sorted(ended.items()):
                    _record_late(connection, id_, device)
        return open_


def _undelivered(
    connection: sql.Connection, attempt: AttemptId, device: str, query: sql.Select[Any] = _UNDELIVERED
) -> DeviceOutcome | None:
    """Return the outcome of a device without an update; None for others."""
    found: DeviceOutcome | None = connection.execute(query, _parameters(attempt, device)).scalar()
    return found


def _record_late(connection: sql.Connection, attempt: AttemptId, device: str) -> None:
    outcome = _undelivered(connection, attempt, device, _UNDELIVERED_HELD)
    if outcome:
        connection.execute(_MARK_LATE, _parameters(attempt, device))
        rounds.move_outcome(connection, attempt, outcome, "late")
        last = connection.execute(_LAST_RESULT, {"of_device": device}).scalar()
        if last and row_mapping.key(attempt).items() <= last.items():
            late = {**last, "outcome": "late", "reason": LATE}
            connection.execute(_SET_LAST_RESULT, {"of_device": device, "last_result": late})


def _newness(row: sql.RowMapping) -> tuple[float, str, int, int]:
    return row["time"], row["run"], row["round"], row["attempt"]


def _parameters(attempt: AttemptId, device: str) -> dict[str, object]:
    return {**row_mapping.parameters(attempt), "of_device": device}


def add(
    connection: sql.Connection, attempt: AttemptId, outcomes: Outcomes, training: Mapping[str, float], now: float
) -> None:
    """Record the end of an attempt; rows that exist stay, so a caller may retry. `training`: seconds, where known."""
    ended = {**row_mapping.key(attempt), "time": now}
    rows = [
        {**ended, "device": device, "outcome": outcome, "reason": reason, "seconds": training.get(device, 0.0)}
        for device, (outcome, reason) in outcomes.items()
    ]
    insert_or_ignore(connection, tables.device_outcomes, rows)


def forget_rounds(connection: sql.Connection, run: str, newest_round: int) -> None:
    """Delete the rows of a run's rounds up to that one."""
    connection.execute(_FORGET_ROUNDS, {"of_run": run, "newest": newest_round})


def forget(connection: sql.Connection, device: str) -> None:
    """Delete a device's rows: whoever has its name next had no part in these rounds."""
    connection.execute(_FORGET_DEVICE, {"of_device": device})


def rename(connection: sql.Connection, device: str, name: str) -> None:
    """Give a device's rows its new name."""
    forget(connection, name)
    connection.execute(_RENAME, {"of_device": device, "device": name})
