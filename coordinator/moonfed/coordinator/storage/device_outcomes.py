"""Outcomes of devices in the attempts that have ended: one row per device and attempt.

A row belongs to the present owner of the name: it is renamed with the device, and deleted with it, with its run, or
once its round is no longer among the run's newest. Each function is part of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import sqlalchemy as sql

from moonfed.coordinator.records import AttemptId, DeviceOutcome, DeviceResult
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore

ROUNDS_KEPT = 1000  # newest rounds of a run
Outcomes = Mapping[str, tuple[DeviceOutcome, str]]  # outcome and reason by device
_columns, _devices = tables.device_outcomes.c, tables.devices.c
_of_device = _columns.device == sql.bindparam("of_device")
_FORGET_ROUNDS = sql.delete(tables.device_outcomes).where(
    _columns.run == sql.bindparam("of_run"), _columns.round <= sql.bindparam("newest")
)
_FORGET_DEVICE = sql.delete(tables.device_outcomes).where(_of_device)
_RENAME = sql.update(tables.device_outcomes).where(_of_device)
_other = tables.device_outcomes.alias("other")
_newest_time = sql.select(sql.func.max(_other.c.time)).where(_other.c.device == _devices.device).scalar_subquery()
_ALL_NEWEST = sql.select(tables.device_outcomes).join(
    tables.devices, sql.and_(_columns.device == _devices.device, _columns.time == _newest_time)
)
_ONE_NEWEST = sql.select(tables.device_outcomes).where(_of_device).order_by(_columns.time.desc()).limit(1)


def add(connection: sql.Connection, attempt: AttemptId, outcomes: Outcomes, training: Mapping[str, float]) -> None:
    """Record the end of an attempt; rows that exist stay, so a caller may retry. `training`: seconds, where known."""
    ended = {**row_mapping.key(attempt), "time": time.time()}
    rows = [
        {**ended, "device": device, "outcome": outcome, "reason": reason, "seconds": training.get(device, 0.0)}
        for device, (outcome, reason) in outcomes.items()
    ]
    insert_or_ignore(connection, tables.device_outcomes, rows)


def all_newest(connection: sql.Connection) -> dict[str, DeviceResult]:
    """Return the newest result of each known device that has one."""
    found = connection.execute(_ALL_NEWEST).mappings()
    return {row["device"]: row_mapping.device_result(row) for row in found}


def newest(connection: sql.Connection, device: str) -> DeviceResult | None:
    """Return a device's newest result."""
    row = connection.execute(_ONE_NEWEST, {"of_device": device}).mappings().first()
    return row_mapping.device_result(row) if row else None


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
