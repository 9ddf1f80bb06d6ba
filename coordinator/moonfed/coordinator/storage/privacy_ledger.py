"""The privacy ledger: what runs have released of devices' data. Nothing deletes its rows, not even with their run."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sql

from moonfed.control.privacy import GAUSSIAN, NO_NOISE
from moonfed.coordinator.privacy.ledger_entry import LedgerEntry, LedgerTotal
from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.storage import runs
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.errors import WrongState

_columns = tables.privacy_releases.c
_OF_RUN = sql.and_(_columns.run == sql.bindparam("run"), _columns.created == sql.bindparam("created"))
_CHARGED = sql.select(sql.func.count()).where(_OF_RUN, _columns.mechanism == GAUSSIAN)
_LAST = (
    sql.select(_columns.next_clip_norm)
    .where(_OF_RUN, _columns.mechanism == GAUSSIAN)
    .order_by(_columns.number.desc())
    .limit(1)
)
_SAME = (
    _columns.run,
    _columns.created,
    _columns.mechanism,
    _columns.what,
    _columns.delta,
    _columns.sampling_rate,
    _columns.noise_multiplier,
)


def _totals(*chosen: sql.ColumnElement[bool]) -> sql.Select[Any]:
    """Select the totals of the chosen releases, in the order of the last release of each."""
    grouped = (
        sql.select(
            sql.func.max(_columns.number).label("last"),
            sql.func.max(_columns.committed).label("committed"),
            sql.func.count().label("releases"),
        )
        .where(*chosen)
        .group_by(*_SAME)
        .subquery()
    )
    return (
        sql.select(*_SAME, _columns.next_clip_norm, grouped.c.committed, grouped.c.releases)
        .join_from(grouped, tables.privacy_releases, _columns.number == grouped.c.last)
        .order_by(_columns.number)
    )


_ALL = _totals()
_OF_NAMES = _totals(_columns.run.in_(sql.bindparam("runs", expanding=True)))


class PrivacyLedger:
    """Every method is one transaction and returns when it is durable. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def totals(self, run: str = "") -> list[LedgerTotal]:
        """Return the totals of all runs, deleted ones included; only those of runs of that name, if it is given.

        They are in the order of their last releases, as are those of `of_run` and `of_runs`.
        """
        return self._read(_OF_NAMES, runs=[run]) if run else self._read(_ALL)

    def of_run(self, record: RunRecord) -> list[LedgerTotal]:
        """Return the totals of one run."""
        return self.of_runs([record])[record.run]

    def of_runs(self, records: Collection[RunRecord]) -> dict[str, list[LedgerTotal]]:
        """Return the totals of each of these runs, by its name, in one query."""
        found: dict[tuple[str, float], list[LedgerTotal]] = {(record.run, record.created): [] for record in records}
        for total in self._read(_OF_NAMES, runs=[record.run for record in records]):
            if (total.run, total.created) in found:  # not an earlier run's of that name
                found[total.run, total.created].append(total)
        return {run: totals for (run, _), totals in found.items()}

    def clip_norm(self, record: RunRecord) -> float:
        """Return the clip of a run's next round: an L2 norm; 0 without privacy."""
        if not record.settings.private:
            return 0.0
        with self._transactions.read() as connection:
            last = connection.execute(_LAST, {"run": record.run, "created": record.created}).scalar()
        return record.settings.clip_norm if last is None else last

    def record_unprotected(self, run: str, what: str) -> None:
        """Record that something was released without noise, once, if the run has privacy; raises NotFound."""
        with self._transactions.write() as connection:
            record = runs.one(connection, run)
            if record.settings.private:
                release = LedgerEntry(
                    run=run, created=record.created, round=0, attempt=0, mechanism=NO_NOISE, what=what
                )
                insert_or_ignore(connection, tables.privacy_releases, [_row(release)])

    def _read(self, statement: sql.Select[Any], **given: object) -> list[LedgerTotal]:
        with self._transactions.read() as connection:
            return [LedgerTotal(**row) for row in connection.execute(statement, given).mappings()]


def charge(connection: sql.Connection, release: LedgerEntry, budget: int) -> None:
    """Charge a run for a committed round, within the caller's transaction.

    Raises WrongState if the run has been charged for all rounds that its budget permits.
    """
    which = {"run": release.run, "created": release.created}
    if connection.execute(_CHARGED, which).scalar_one() >= budget:
        attempt = AttemptId(run=release.run, round=release.round, attempt=release.attempt)
        raise WrongState(f"{attempt} cannot be committed: the privacy budget is spent", field="privacy", value=budget)
    connection.execute(sql.insert(tables.privacy_releases).values(_row(release)))


def _row(release: LedgerEntry) -> dict[str, object]:
    return asdict(replace(release, committed=release.committed or time.time()))
