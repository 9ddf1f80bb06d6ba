"""The privacy ledger: what runs have released of devices' data. Nothing deletes its rows, not even with their run."""

from __future__ import annotations

import time
from dataclasses import asdict, fields, replace

import sqlalchemy as sql

from moonfed.control.privacy import GAUSSIAN, NO_NOISE
from moonfed.coordinator.privacy.ledger_entry import LedgerEntry
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
_ALL = sql.select(tables.privacy_releases).order_by(_columns.number)


class PrivacyLedger:
    """Every method is one transaction and returns when it is durable. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def releases(self, run: str = "") -> list[LedgerEntry]:
        """Return all releases, oldest first; only those of runs of that name, deleted ones included, if it is given."""
        chosen = _ALL.where(_columns.run == run) if run else _ALL
        with self._transactions.read() as connection:
            return [_release(row) for row in connection.execute(chosen).mappings()]

    def of_run(self, record: RunRecord) -> list[LedgerEntry]:
        """Return the releases of one run, oldest first."""
        return [release for release in self.releases(record.run) if release.created == record.created]

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


def _release(row: sql.RowMapping) -> LedgerEntry:
    return LedgerEntry(**{field.name: row[field.name] for field in fields(LedgerEntry)})
