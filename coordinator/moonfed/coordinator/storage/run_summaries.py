"""Summaries of all running runs in one query, which replicas poll to notice changes. PostgreSQL only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sql

from moonfed.coordinator.rounds.state import ACTIVE
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_replace_if
from moonfed.coordinator.storage.eligibility import VERSION
from moonfed.errors import NotFound

Request = Literal["stop", "pause", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The position of a running run; any change to the run changes its summary."""

    holder: str  # of its lease; empty: none
    request: str = ""  # of an operator: stop, pause or resume
    run_status: str = "running"
    round: int = 0  # the newest one; 0: none yet
    attempt: int = 0
    status: str = ""
    cohort: int = 0  # its size, which replacements increase
    accepted: int = 0  # reports in it
    rejected: int = 0
    declined: int = 0
    eligibility: int = 0  # changes with every device's answer


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
                request=row.action or "",
                run_status=row.run_status,
                round=row.round or 0,
                attempt=row.attempt or 0,
                status=row.status or "",
                cohort=row.cohort or 0,
                accepted=row.accepted,
                rejected=row.rejected,
                declined=row.declined,
                eligibility=int(row.eligibility),
            )
            for row in rows
        }

    def request(self, run: str, action: Request) -> None:
        """Record an operator's request in place of an earlier one, unless that was to stop; raises NotFound."""
        row, earlier = {"run": run, "action": action}, tables.operator_requests.c.action
        with self._transactions.write() as connection:
            try:
                insert_or_replace_if(connection, tables.operator_requests, [row], earlier != "stop")
            except sql.exc.IntegrityError as error:
                raise NotFound(f"there is no run {run!r}", field="run", value=run) from error


def fulfil(connection: sql.Connection, run: str) -> None:
    """Delete a request to pause or resume the run, which was fulfilled; a request to stop stays until it has ended."""
    columns = tables.operator_requests.c
    connection.execute(sql.delete(tables.operator_requests).where(columns.run == run, columns.action != "stop"))


def _running() -> sql.Select[tuple[object, ...]]:
    runs = tables.runs
    rounds = tables.rounds
    reports = tables.reports
    leases = tables.leases
    requests = tables.operator_requests
    newest = (
        sql.select(
            rounds.c.round,
            rounds.c.attempt,
            rounds.c.status,
            sql.func.json_array_length(rounds.c.cohort).label("cohort"),
        )
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
    checked = sql.select(VERSION).where(tables.eligibility.c.run == runs.c.run).lateral("checked")
    held = sql.and_(leases.c.run == runs.c.run, leases.c.expires > NOW)
    return (
        sql.select(
            runs.c.run,
            runs.c.status.label("run_status"),
            leases.c.holder,
            requests.c.action,
            newest,
            answered,
            checked,
        )
        .select_from(
            runs.outerjoin(leases, held)
            .outerjoin(requests, requests.c.run == runs.c.run)
            .outerjoin(newest, sql.true())
            .outerjoin(answered, sql.true())
            .outerjoin(checked, sql.true())
        )
        .where(runs.c.status.in_(ACTIVE))
    )


_RUNNING = _running()
