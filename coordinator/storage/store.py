"""The coordinator's memory: runs, rounds, receipts and metrics, in one SQL database; its registry knows the devices.

Every method is one transaction and returns when it is durable. Nothing here knows what a round means.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql

from coordinator.records import Answer, AttemptId, RoundRecord, RunRecord
from coordinator.storage import rows, tables
from coordinator.storage.registry import Registry
from coordinator.storage.transactions import Transactions
from moonfed.blobs import BlobRef
from moonfed.errors import AlreadyExists, NotFound


class Store:
    """A database whose schema is already there; `coordinator.storage.database` opens one."""

    def __init__(self, engine: sql.Engine) -> None:
        self._transactions = Transactions(engine)
        self.registry = Registry(self._transactions)

    def close(self) -> None:
        """Gives the database's files back."""
        self._transactions.close()

    # Runs

    def add_run(self, record: RunRecord) -> None:
        """Keeps a new run; AlreadyExists if the name is taken."""
        row = {
            "run": record.run,
            "created": record.created,
            "status": record.status,
            "settings": record.settings.to_document(),
            "method": record.method,
            **rows.ref_columns("manifest", record.manifest),
            **rows.ref_columns("initial", record.initial),
        }
        with self._transactions.write() as connection:
            try:
                connection.execute(sql.insert(tables.runs).values(row))
            except sql.exc.IntegrityError as error:
                raise AlreadyExists(f"there is already a run {record.run!r}; give another name") from error

    def runs(self) -> list[RunRecord]:
        """All runs, oldest first."""
        with self._transactions.read() as connection:
            found = connection.execute(sql.select(tables.runs).order_by(tables.runs.c.created, tables.runs.c.run))
            return [rows.run_record(row) for row in found.mappings()]

    def run(self, run: str) -> RunRecord:
        """One run; NotFound."""
        with self._transactions.read() as connection:
            row = connection.execute(sql.select(tables.runs).where(tables.runs.c.run == run)).mappings().first()
        if row is None:
            raise NotFound(f"there is no run {run!r}")
        return rows.run_record(row)

    def end_run(self, run: str, status: str) -> None:
        """The run is finished or stopped."""
        with self._transactions.write() as connection:
            connection.execute(sql.update(tables.runs).where(tables.runs.c.run == run).values(status=status))

    # Rounds

    def open_round(self, attempt: AttemptId, cohort: Sequence[str]) -> None:
        """A round has opened with this cohort."""
        row = {
            **rows.key(attempt),
            "status": "open",
            "cohort": list(cohort),
            "counted": [],
            "reason": "",
            "blobs": {},
            "opened": time.time(),
            "seconds": 0.0,
        }
        with self._transactions.write() as connection:
            connection.execute(sql.insert(tables.rounds).values(row))

    def commit_round(
        self,
        attempt: AttemptId,
        counted: Sequence[str],
        blobs: Mapping[str, BlobRef],
        *,
        metrics: Mapping[str, float],
        metrics_before: Mapping[str, float],
    ) -> None:
        """The round's global state by role, who is in it, its metrics and more of the model before it, all at once."""
        with self._transactions.write() as connection:
            changes = {"counted": list(counted), "blobs": rows.blobs_document(blobs)}
            _close_round(connection, attempt, "committed", changes)
            _put_metrics(connection, attempt.run, attempt.round, metrics)
            _put_metrics(connection, attempt.run, attempt.round - 1, metrics_before)

    def abandon_round(self, attempt: AttemptId, reason: str) -> None:
        """The round came to nothing."""
        with self._transactions.write() as connection:
            _close_round(connection, attempt, "abandoned", {"reason": reason})

    def round(self, attempt: AttemptId) -> RoundRecord | None:
        """One attempt at a round."""
        found = self._rounds(sql.select(tables.rounds).where(_same(tables.rounds, attempt)))
        return found[0] if found else None

    def latest_round(self, run: str, status: str | None = None) -> RoundRecord | None:
        """The newest attempt at a round of a run, or the newest of that status."""
        columns = tables.rounds.c
        query = sql.select(tables.rounds).where(columns.run == run)
        query = query.where(columns.status == status) if status else query
        found = self._rounds(query.order_by(columns.round.desc(), columns.attempt.desc()).limit(1))
        return found[0] if found else None

    def past_rounds(self, run: str, after: AttemptId | None, limit: int) -> list[RoundRecord]:
        """The next so many committed and abandoned attempts after that one, in order."""
        columns = tables.rounds.c
        query = sql.select(tables.rounds).where(columns.run == run, columns.status != "open")
        if after:
            query = query.where(sql.tuple_(columns.round, columns.attempt) > (after.round, after.attempt))
        return self._rounds(query.order_by(columns.round, columns.attempt).limit(limit))

    def participants(self, run: str) -> set[str]:
        """The devices that were in the cohort of any attempt at a round of the run."""
        query = sql.select(tables.rounds.c.cohort).where(tables.rounds.c.run == run)
        with self._transactions.read() as connection:
            return {device for cohort in connection.execute(query).scalars() for device in cohort}

    def _rounds(self, query: sql.Select[Any]) -> list[RoundRecord]:
        with self._transactions.read() as connection:
            found = connection.execute(query).mappings().all()
            return [rows.round_record(row, _metrics(connection, row["run"], row["round"])) for row in found]

    # Answers of devices

    def put_answer(self, answer: Answer) -> None:
        """Keeps a device's answer in place of an earlier one: the receipt, if it is an accepted update."""
        row = {
            **rows.key(answer.id),
            "device": answer.device,
            "outcome": answer.outcome,
            "reason": answer.reason,
            "samples": answer.samples,
            "steps": answer.steps,
            "metrics": dict(answer.metrics),
            "blobs": rows.blobs_document(answer.blobs),
            "decoded": rows.blobs_document(answer.decoded),
        }
        with self._transactions.write() as connection:
            connection.execute(
                sql.delete(tables.answers).where(
                    _same(tables.answers, answer.id), tables.answers.c.device == answer.device
                )
            )
            connection.execute(sql.insert(tables.answers).values(row))

    def answers(self, attempt: AttemptId) -> list[Answer]:
        """The devices' answers in one attempt, in order of their names."""
        query = sql.select(tables.answers).where(_same(tables.answers, attempt)).order_by(tables.answers.c.device)
        with self._transactions.read() as connection:
            return [rows.answer(row) for row in connection.execute(query).mappings()]

    def has_receipt(self, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> bool:
        """Whether exactly this update of the device was accepted, in an attempt that was not abandoned.

        Raises AlreadyExists if a different one was.
        """
        columns, rounds = tables.answers.c, tables.rounds
        query = (
            sql.select(tables.answers)
            .join(rounds, sql.and_(*(rounds.c[name] == columns[name] for name in ("run", "round", "attempt"))))
            .where(_same(tables.answers, attempt), columns.device == device)
            .where(columns.outcome == "accepted", rounds.c.status != "abandoned")
        )
        with self._transactions.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is not None and rows.answer(row).blobs != dict(blobs):
            raise AlreadyExists(f"a different update of {device!r} already stands in {attempt}")
        return row is not None

    def latest_counted(self, run: str) -> dict[str, AttemptId]:
        """For each device the latest attempt whose model has its update."""
        rounds, answers = tables.rounds.c, tables.answers.c
        in_model = sql.and_(answers.run == run, answers.outcome == "accepted", rounds.status == "committed")
        joined = tables.answers.join(
            tables.rounds, sql.and_(*(rounds[name] == answers[name] for name in ("run", "round", "attempt")))
        )
        latest = sql.select(answers.device, sql.func.max(answers.round).label("round")).select_from(joined)
        latest_of = latest.where(in_model).group_by(answers.device).subquery()
        query = (  # a round is committed once, so its number tells the attempt
            sql.select(latest_of.c.device, rounds.round, rounds.attempt)
            .join_from(latest_of, tables.rounds, latest_of.c.round == rounds.round)
            .where(rounds.run == run, rounds.status == "committed")
        )
        with self._transactions.read() as connection:
            found = connection.execute(query)
            return {row.device: AttemptId(run=run, round=row.round, attempt=row.attempt) for row in found}

    # Metrics

    def put_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Keeps metrics of a global model; those of the same name are replaced."""
        with self._transactions.write() as connection:
            _put_metrics(connection, run, round_, metrics)

    def metrics(self, run: str, round_: int) -> dict[str, float]:
        """The metrics of a global model, by name; round 0 stands for the initial weights."""
        with self._transactions.read() as connection:
            return _metrics(connection, run, round_)


def _same(table: sql.Table, attempt: AttemptId) -> sql.ColumnElement[bool]:
    return sql.and_(*(table.c[name] == value for name, value in rows.key(attempt).items()))


def _close_round(connection: sql.Connection, attempt: AttemptId, status: str, changes: Mapping[str, Any]) -> None:
    columns = tables.rounds.c
    opened = connection.execute(sql.select(columns.opened).where(_same(tables.rounds, attempt))).scalar_one()
    seconds = max(0.0, time.time() - opened)  # shown only; deadlines are timed by the monotonic clock
    connection.execute(
        sql.update(tables.rounds).where(_same(tables.rounds, attempt)).values(status=status, seconds=seconds, **changes)
    )


def _metrics(connection: sql.Connection, run: str, round_: int) -> dict[str, float]:
    columns = tables.metrics.c
    query = sql.select(columns.name, columns.value).where(columns.run == run, columns.round == round_)
    return {row.name: row.value for row in connection.execute(query.order_by(columns.name))}


def _put_metrics(connection: sql.Connection, run: str, round_: int, metrics: Mapping[str, float]) -> None:
    columns = tables.metrics.c
    connection.execute(
        sql.delete(tables.metrics).where(columns.run == run, columns.round == round_, columns.name.in_(list(metrics)))
    )
    values = [{"run": run, "round": round_, "name": name, "value": value} for name, value in metrics.items()]
    if values:
        connection.execute(sql.insert(tables.metrics), values)
