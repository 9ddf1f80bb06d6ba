"""Rounds: `open`, perhaps `reducing`, then `committed` or `abandoned`; within the caller's transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.records import AttemptId, RoundRecord
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.coordinator.storage.metrics import metrics_by_round
from moonfed.errors import WrongState

UNDER_WAY = ("open", "reducing")  # rounds whose end is not decided
PAST = ("committed", "abandoned")
_columns = tables.rounds.c


def add(connection: sql.Connection, attempt: AttemptId, cohort: Sequence[str]) -> None:
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
    }
    insert_or_ignore(connection, tables.rounds, [row])


def join(connection: sql.Connection, attempt: AttemptId, device: str) -> None:
    """Add a device to the round's cohort."""
    which = row_mapping.same(tables.rounds, attempt)
    cohort = connection.execute(sql.select(_columns.cohort).where(which).with_for_update()).scalar_one()
    joined = sorted({*cohort, device})
    connection.execute(sql.update(tables.rounds).where(which).values(cohort=joined))


def require_open(connection: sql.Connection, attempt: AttemptId) -> None:
    """Raise WrongState unless the round is open; it then stays open until the transaction ends."""
    query = sql.select(_columns.status).where(row_mapping.same(tables.rounds, attempt))
    status = connection.execute(query.with_for_update(read=True)).scalar()
    if status != "open":
        raise WrongState(f"{attempt} is {status or 'unknown'}; it no longer accepts updates")


def begin_reducing(connection: sql.Connection, attempt: AttemptId) -> None:
    """Mark an open round as being reduced: it takes no more reports."""
    which = sql.and_(row_mapping.same(tables.rounds, attempt), _columns.status == "open")
    connection.execute(sql.update(tables.rounds).where(which).values(status="reducing"))


def reopen(connection: sql.Connection, attempt: AttemptId) -> None:
    """Delete the reports of a round that has not ended; raises WrongState if it has."""
    which = row_mapping.same(tables.rounds, attempt)
    if connection.execute(sql.select(_columns.status).where(which).with_for_update()).scalar() not in UNDER_WAY:
        raise WrongState(f"{attempt} has ended; it cannot be opened again")
    connection.execute(sql.delete(tables.reports).where(row_mapping.same(tables.reports, attempt)))
    connection.execute(sql.update(tables.rounds).where(which).values(status="open"))


def close(connection: sql.Connection, attempt: AttemptId, status: str, changes: Mapping[str, Any]) -> None:
    """Close an active round. Abandoning it again changes nothing, so a caller may retry."""
    query = sql.select(_columns.status, _columns.opened).where(row_mapping.same(tables.rounds, attempt))
    found = connection.execute(query.with_for_update()).one()
    if found.status == status == "abandoned":
        return
    if found.status not in UNDER_WAY:
        raise WrongState(f"{attempt} is {found.status}; it cannot be {status}")
    seconds = max(0.0, time.time() - found.opened)  # shown only; deadlines are timed by the monotonic clock
    which = row_mapping.same(tables.rounds, attempt)
    connection.execute(sql.update(tables.rounds).where(which).values(status=status, seconds=seconds, **changes))


def note(connection: sql.Connection, attempt: AttemptId, reason: str) -> None:
    """Record a note on a round."""
    connection.execute(sql.update(tables.rounds).where(row_mapping.same(tables.rounds, attempt)).values(reason=reason))


def one(connection: sql.Connection, attempt: AttemptId) -> RoundRecord | None:
    """Return one round; None if it is unknown."""
    found = _found(connection, sql.select(tables.rounds).where(row_mapping.same(tables.rounds, attempt)))
    return found[0] if found else None


def latest(connection: sql.Connection, run: str, status: str | None = None) -> RoundRecord | None:
    """Return a run's newest round, or its newest with that status."""
    query = sql.select(tables.rounds).where(_columns.run == run)
    query = query.where(_columns.status == status) if status else query
    found = _found(connection, query.order_by(_columns.round.desc(), _columns.attempt.desc()).limit(1))
    return found[0] if found else None


def past(connection: sql.Connection, run: str, after: AttemptId | None, limit: int) -> list[RoundRecord]:
    """Return the next `limit` committed and abandoned rounds after `after`, in order."""
    query = sql.select(tables.rounds).where(_columns.run == run, _columns.status.in_(PAST))
    if after:
        query = query.where(sql.tuple_(_columns.round, _columns.attempt) > (after.round, after.attempt))
    return _found(connection, query.order_by(_columns.round, _columns.attempt).limit(limit))


def _found(connection: sql.Connection, query: sql.Select[Any]) -> list[RoundRecord]:
    """Run a query for rounds of one run."""
    found = connection.execute(query).mappings().all()
    if not found:
        return []
    numbers = [row["round"] for row in found]
    span = (found[0]["run"], min(numbers), max(numbers))
    blobs, metrics = references.by_round(connection, *span), metrics_by_round(connection, *span)
    return [row_mapping.round_record(row, blobs.get(row["round"], {}), metrics.get(row["round"], {})) for row in found]
