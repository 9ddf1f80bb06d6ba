"""Summaries of all running runs in one query, which replicas poll to notice changes. PostgreSQL only."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sql

from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.errors import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The position of a running run; any change to the run changes its summary."""

    holder: str  # of its lease; empty: none
    stopping: bool  # as requested by an operator
    round: int = 0  # the newest one; 0: none yet
    attempt: int = 0
    status: str = ""
    accepted: int = 0  # reports in it
    rejected: int = 0
    declined: int = 0


class RunSummaries:
    """Every method is one transaction. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def load(self) -> dict[str, RunSummary]:
        """Return the summaries of all running runs."""
        with self._transactions.read() as connection:
            rows = connection.execute(_RUNNING).all()
        return {
            row.run: RunSummary(
                holder=row.holder or "",
                stopping=row.stop is not None,
                round=row.round or 0,
                attempt=row.attempt or 0,
                status=row.status or "",
                accepted=row.accepted,
                rejected=row.rejected,
                declined=row.declined,
            )
            for row in rows
        }

    def request_stop(self, run: str) -> None:
        """Record an operator's request to stop the run; raises NotFound."""
        with self._transactions.write() as connection:
            try:
                insert_or_ignore(connection, tables.stop_requests, [{"run": run}])
            except sql.exc.IntegrityError as error:
                raise NotFound(f"there is no run {run!r}") from error


def _running() -> sql.Select[tuple[object, ...]]:
    runs, rounds, reports, leases, stop_requests = (
        tables.runs,
        tables.rounds,
        tables.reports,
        tables.leases,
        tables.stop_requests,
    )
    newest = (
        sql.select(rounds.c.round, rounds.c.attempt, rounds.c.status)
        .where(rounds.c.run == runs.c.run)
        .order_by(rounds.c.round.desc(), rounds.c.attempt.desc())
        .limit(1)
        .lateral("newest")
    )
    outcomes = ("accepted", "rejected", "declined")
    answered = (
        sql.select(*(sql.func.count().filter(reports.c.outcome == outcome).label(outcome) for outcome in outcomes))
        .where(reports.c.run == runs.c.run, reports.c.round == newest.c.round, reports.c.attempt == newest.c.attempt)
        .lateral("answered")
    )
    held = sql.and_(leases.c.run == runs.c.run, leases.c.expires > NOW)
    return (
        sql.select(runs.c.run, leases.c.holder, stop_requests.c.run.label("stop"), newest, answered)
        .select_from(
            runs.outerjoin(leases, held)
            .outerjoin(stop_requests, stop_requests.c.run == runs.c.run)
            .outerjoin(newest, sql.true())
            .outerjoin(answered, sql.true())
        )
        .where(runs.c.status == "running")
    )


_RUNNING = _running()
