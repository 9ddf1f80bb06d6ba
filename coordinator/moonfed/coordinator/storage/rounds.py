"""Rounds: `open`, perhaps `reducing`, then `committed` or `abandoned`; within the caller's transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.control.devices import DeviceOutcome
from moonfed.control.runs import Round, RoundOutcomes
from moonfed.coordinator.records import AttemptId, AttemptMeasurements, RoundRecord
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.coordinator.storage.metrics import metrics_by_round
from moonfed.errors import WrongState
from moonfed.formatting import moment

UNDER_WAY = ("open", "reducing")  # rounds whose end is not decided
PAST = ("committed", "abandoned")
RoundRow: TypeAlias = tuple[sql.RowMapping, Mapping[str, BlobRef], Mapping[str, float]]
_columns = tables.rounds.c
_of_attempt, _of_run = row_mapping.of_attempt(tables.rounds), _columns.run == sql.bindparam("of_run")
_position = (_columns.round, _columns.attempt)
_ONE = sql.select(tables.rounds).where(_of_attempt)
_NEWEST = sql.select(tables.rounds).where(_of_run).order_by(*(part.desc() for part in _position)).limit(1)
_NEWEST_WITH_STATUS = _NEWEST.where(_columns.status == sql.bindparam("status"))
_FIRST_PAST = (
    sql.select(tables.rounds)
    .where(_of_run, _columns.status.in_(PAST))
    .order_by(*_position)
    .limit(sql.bindparam("limit"))
)
_NEXT_PAST = _FIRST_PAST.where(sql.tuple_(*_position) > sql.tuple_(sql.bindparam("round"), sql.bindparam("attempt")))
_HELD = (
    sql.select(_columns.status, _columns.opened, _columns.cohort, _columns.reused).where(_of_attempt).with_for_update()
)
_STATUS = sql.select(_columns.status).where(_of_attempt).with_for_update(read=True)
_CHANGE = sql.update(tables.rounds).where(_of_attempt)
_BEGIN_REDUCING = _CHANGE.where(_columns.status == "open").values(status="reducing")
_FORGET_REPORTS = sql.delete(tables.reports).where(row_mapping.of_attempt(tables.reports))
_COHORT = sql.select(_columns.cohort, _columns.replacements).where(_of_attempt).with_for_update()
_of_round = sql.and_(_of_run, _columns.round == sql.bindparam("of_round"))
_UPDATES_KEPT = (
    sql.select(_columns.attempt, _columns.status, _columns.reused, _columns.reusable)
    .where(_of_round)
    .order_by(_columns.attempt.desc())
    .limit(1)
)
_FORGET_REUSABLE = sql.update(tables.rounds).where(_of_round).values(reusable={})
_PAST_BEFORE = (
    sql.select(*_position)
    .where(_of_run, _columns.status.in_(PAST))
    .order_by(*(part.desc() for part in _position))
    .offset(sql.bindparam("newest"))
    .limit(1)
)
_HAS_STATUS = sql.select(_columns.status).where(_of_attempt)
_OUTCOMES = sql.select(_columns.outcomes).where(_of_attempt).with_for_update()
_NEWEST_ROUND = sql.select(sql.func.max(_columns.round)).where(_of_run)
_ENDED = (
    sql.select(*_position, _columns.status, _columns.opened, _columns.seconds)
    .where(
        _of_run,
        _columns.status.in_(PAST),
        sql.tuple_(*_position) > sql.tuple_(sql.bindparam("round"), sql.bindparam("attempt")),
    )
    .order_by(*_position)
    .limit(sql.bindparam("limit"))
)


def add(connection: sql.Connection, attempt: AttemptId, cohort: Sequence[str], reused: Mapping[str, int]) -> None:
    """Record an open round; idempotent."""
    row = {
        **row_mapping.key(attempt),
        "status": "open",
        "cohort": list(cohort),
        "counted": [],
        "reason": "",
        "opened": time.time(),
        "seconds": 0.0,
        "incidents": [],
        "bases": {},
        "replacements": [],
        "reused": dict(reused),
        "reusable": {},
    }
    insert_or_ignore(connection, tables.rounds, [row])


def join(connection: sql.Connection, attempt: AttemptId, device: str) -> None:
    """Add a device to the round's cohort."""
    which = row_mapping.parameters(attempt)
    cohort = connection.execute(_HELD, which).one().cohort
    connection.execute(_CHANGE, {**which, "cohort": sorted({*cohort, device})})


def replace_devices(connection: sql.Connection, attempt: AttemptId, devices: Sequence[str]) -> None:
    """Add replacements to the round's cohort; idempotent."""
    which = row_mapping.parameters(attempt)
    found = connection.execute(_COHORT, which).one()
    joined = {
        "cohort": sorted({*found.cohort, *devices}),
        "replacements": sorted({*found.replacements, *devices}),
    }
    connection.execute(_CHANGE, {**which, **joined})


def holds_update(connection: sql.Connection, attempt: AttemptId, device: str) -> bool:
    """Return True if a device's accepted update of an attempt counts, or may still, in this attempt or a later one."""
    newest = connection.execute(_UPDATES_KEPT, {"of_run": attempt.run, "of_round": attempt.round}).one()
    if newest.status == "abandoned":
        return bool(newest.reusable.get(device) == attempt.attempt)
    return bool(newest.reused.get(device, newest.attempt) == attempt.attempt)


def forget_reusable(connection: sql.Connection, run: str, round_: int) -> None:
    """Exclude the updates of abandoned attempts from later attempts at the round."""
    connection.execute(_FORGET_REUSABLE, {"of_run": run, "of_round": round_})


def require_open(connection: sql.Connection, attempt: AttemptId) -> None:
    """Raise WrongState unless the round is open; it then stays open until the transaction ends."""
    status = connection.execute(_STATUS, row_mapping.parameters(attempt)).scalar()
    if status != "open":
        raise WrongState(
            f"{attempt} is {status or 'unknown'}; it no longer accepts updates",
            field="status",
            value=status or "unknown",
        )


def begin_reducing(connection: sql.Connection, attempt: AttemptId) -> None:
    """Mark an open round as being reduced: it takes no more reports."""
    connection.execute(_BEGIN_REDUCING, row_mapping.parameters(attempt))


def reopen(connection: sql.Connection, attempt: AttemptId) -> None:
    """Delete the reports of a round that has not ended; raises WrongState if it has."""
    which = row_mapping.parameters(attempt)
    if connection.execute(_HELD, which).scalar() not in UNDER_WAY:
        raise WrongState(f"{attempt} has ended; it cannot be opened again", field="ended attempt", value=str(attempt))
    connection.execute(_FORGET_REPORTS, which)
    connection.execute(_CHANGE, {**which, "status": "open", "reused": {}})


def close(
    connection: sql.Connection,
    attempt: AttemptId,
    status: str,
    changes: Mapping[str, Any],
    measured: AttemptMeasurements,
) -> bool:
    """Close an active round. Abandoning it again changes nothing, so a caller may retry; False is returned then."""
    which = row_mapping.parameters(attempt)
    found = connection.execute(_HELD, which).one()
    if found.status == status == "abandoned":
        return False
    if found.status not in UNDER_WAY:
        raise WrongState(f"{attempt} is {found.status}; it cannot be {status}")
    passed = max(0.0, time.time() - found.opened)  # shown only; deadlines are timed by the monotonic clock
    figures = {
        "seconds": sum(measured.phases.values()) if measured.phases else passed,
        "phases": dict(measured.phases),
        "received_bytes": measured.received_bytes,
        "personal_lost": measured.personal_lost,
        "sent_bytes": (len(found.cohort) - len(found.reused)) * measured.assigned_bytes,
    }
    connection.execute(_CHANGE, {**which, "status": status, **figures, **changes})
    return True


def note(connection: sql.Connection, attempt: AttemptId, reason: str) -> None:
    """Record a note on a round."""
    connection.execute(_CHANGE, {**row_mapping.parameters(attempt), "reason": reason})


def one(connection: sql.Connection, attempt: AttemptId) -> RoundRecord | None:
    """Return one round; None if it is unknown."""
    found = _found(connection, _ONE, row_mapping.parameters(attempt))
    return found[0] if found else None


def latest(connection: sql.Connection, run: str, status: str | None = None) -> RoundRecord | None:
    """Return a run's newest round, or its newest with that status."""
    query, values = (_NEWEST_WITH_STATUS, {"of_run": run, "status": status}) if status else (_NEWEST, {"of_run": run})
    found = _found(connection, query, values)
    return found[0] if found else None


def past(connection: sql.Connection, run: str, after: AttemptId | None, limit: int) -> list[RoundRecord]:
    """Return the next `limit` committed and abandoned rounds after `after`, in order."""
    return _found(connection, *_next_past(run, after, limit))


def shown(connection: sql.Connection, run: str, after: AttemptId | None, limit: int) -> list[Round]:
    """Return the next `limit` committed and abandoned rounds after `after`, in order, as operators see them."""
    return [row_mapping.shown_round(*found) for found in _rows(connection, *_next_past(run, after, limit))]


def _next_past(run: str, after: AttemptId | None, limit: int) -> tuple[sql.Select[Any], dict[str, Any]]:
    if after is None:
        return _FIRST_PAST, {"of_run": run, "limit": limit}
    return _NEXT_PAST, {"of_run": run, "limit": limit, "round": after.round, "attempt": after.attempt}


def ended(
    connection: sql.Connection, run: str, after: AttemptId | None, limit: int, newest: int
) -> list[RoundOutcomes]:
    """Return the next `limit` committed and abandoned attempts at the `newest` rounds, without devices, in order."""
    before = (connection.execute(_NEWEST_ROUND, {"of_run": run}).scalar() or 0) - newest
    round_, attempt = max((before + 1, 0), (after.round, after.attempt) if after else (0, 0))
    found = connection.execute(_ENDED, {"of_run": run, "limit": limit, "round": round_, "attempt": attempt})
    return [
        RoundOutcomes(
            run=run,
            round=row.round,
            attempt=row.attempt,
            status=row.status,
            time=moment(row.opened + row.seconds),
        )
        for row in found
    ]


def is_under_way(connection: sql.Connection, attempt: AttemptId) -> bool:
    """Return True if the end of a round is not decided."""
    return connection.execute(_HAS_STATUS, row_mapping.parameters(attempt)).scalar() in UNDER_WAY


def move_outcome(connection: sql.Connection, attempt: AttemptId, before: DeviceOutcome, after: DeviceOutcome) -> None:
    """Count a device of an ended round under another outcome."""
    which = row_mapping.parameters(attempt)
    outcomes: dict[str, int] = dict(connection.execute(_OUTCOMES, which).scalar_one())
    outcomes[before] = outcomes.get(before, 1) - 1
    outcomes[after] = outcomes.get(after, 0) + 1
    left = {outcome: number for outcome, number in outcomes.items() if number}
    connection.execute(_CHANGE, {**which, "outcomes": left})


def past_before(connection: sql.Connection, run: str, newest: int) -> AttemptId | None:
    """Return the last committed or abandoned round before the `newest` ones; None if there are no more."""
    row = connection.execute(_PAST_BEFORE, {"of_run": run, "newest": newest}).first()
    return AttemptId(run=run, round=row.round, attempt=row.attempt) if row else None


def _found(connection: sql.Connection, query: sql.Select[Any], values: Mapping[str, Any]) -> list[RoundRecord]:
    return [row_mapping.round_record(*found) for found in _rows(connection, query, values)]


def _rows(connection: sql.Connection, query: sql.Select[Any], values: Mapping[str, Any]) -> list[RoundRow]:
    """Run a query for rounds of one run; add the blobs and metrics of their global states."""
    found = connection.execute(query, values).mappings().all()
    blobs: dict[int, dict[str, BlobRef]] = {}
    metrics: dict[int, dict[str, float]] = {}
    if committed := [row["round"] for row in found if row["status"] == "committed"]:
        span = (found[0]["run"], min(committed), max(committed))
        blobs, metrics = references.by_round(connection, *span), metrics_by_round(connection, *span)
    return [(row, blobs.get(row["round"], {}), metrics.get(row["round"], {})) for row in found]
