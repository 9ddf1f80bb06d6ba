"""Evaluations of global models on devices, and evaluators' results on test sets."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL, Metric
from moonfed.control.evaluations import DeviceScore
from moonfed.control.held_out_score import HeldOutScore
from moonfed.coordinator.records import EvaluationRecord, EvaluationReport
from moonfed.coordinator.storage import runs
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore, insert_or_replace
from moonfed.coordinator.storage.metrics import put_metrics
from moonfed.errors import NotFound, WrongState

_columns = tables.evaluations.c
_answers = tables.evaluation_devices.c
_devices = tables.devices.c
_PENDING = {"outcome": "pending", "reason": "", "samples": 0, "score": 0.0, "local_score": None}
_EVALUATIONS = sql.select(tables.evaluations, tables.runs.c.metric).join(
    tables.runs, tables.runs.c.run == tables.evaluations.c.run
)


class EvaluationRecords:
    """Every method is one transaction and returns when it is durable. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @property
    def shared(self) -> bool:
        """True if other coordinators may begin and end evaluations, too."""
        return self._transactions.shared

    def begin(self, run: str, round_: int, seconds: float, *, again: bool = False) -> EvaluationRecord:
        """Return the evaluation of a global model, which is open or has ended; begin one if there is none.

        With `again`, another one replaces one that has ended. The run's participants are expected to answer, except
        those that said that they are ineligible. The model is retained until the evaluation ends. Raises NotFound if
        the run or the model does not exist.
        """
        with self._transactions.write() as connection:
            runs.status_held(connection, run)  # one at a time, and none while models are pruned
            found = _one(connection, run, round_)
            if found and not (again and found.closed):
                return self._complete(connection, [found])[0]
            model = references.held(connection, run, round_, MODEL)
            if model is None:
                raise NotFound(
                    f"the global model of round {round_} of run {run!r} does not exist, or was deleted",
                    field="global model",
                    value=round_,
                )
            now = self._now(connection)
            row = {
                "run": run,
                "round": round_,
                "number": found.number + 1 if found else 1,
                "model_sha256": model.sha256,
                "model_size": model.size,
                "opened": now,
                "deadline": now + seconds,
                "closed": 0.0,
            }
            insert_or_replace(connection, tables.evaluations, [row])
            connection.execute(sql.delete(tables.evaluation_devices).where(_of(tables.evaluation_devices, run, round_)))
            references.add(connection, run, tables.EVALUATED, {str(round_): model})
            _expect(connection, run, round_, _participants(connection, run))
            return self._complete(connection, [_require(_one(connection, run, round_), run, round_)])[0]

    def open_ones(self) -> list[EvaluationRecord]:
        """Return the evaluations that have not ended."""
        with self._transactions.read() as connection:
            query = _EVALUATIONS.where(_columns.closed == 0).order_by(_columns.opened, _columns.run)
            return self._complete(connection, map(_record, connection.execute(query).mappings()))

    def of_run(self, run: str) -> list[EvaluationRecord]:
        """Return a run's evaluations, by round."""
        with self._transactions.read() as connection:
            query = _EVALUATIONS.where(_columns.run == run).order_by(_columns.round)
            return self._complete(connection, map(_record, connection.execute(query).mappings()))

    def expect(self, record: EvaluationRecord, devices: Collection[str]) -> None:
        """Record that these devices are expected to answer, unless the evaluation has ended; idempotent."""
        with self._transactions.write() as connection:
            if _is_open(connection, record.run, record.round, record.number):
                _expect(connection, record.run, record.round, devices)

    def answer(self, report: EvaluationReport) -> bool:
        """Record a device's answer; return False if it has already answered, in which case its first answer is kept.

        Raises NotFound if there is no such evaluation, WrongState if it has ended or is of another model, InvalidInput
        for a score that the run's metric cannot have.
        """
        with self._transactions.write() as connection:
            found = _require(_one(connection, report.run, report.round, shared=True), report.run, report.round)
            if found.number != report.number or found.closed or found.model.sha256 != report.model:
                raise WrongState(f"evaluation {report.number} of global model {report.round} of run {report.run!r} has "
                                 "ended", field="evaluation", value=report.number)  # fmt: skip
            scores = report.scores
            if scores:
                scores.require_fits(found.metric)
            _expect(connection, report.run, report.round, [report.device])
            values = {
                "outcome": "scored" if scores else "declined",
                "reason": report.reason,
                "samples": scores.samples if scores else 0,
                "score": scores.score if scores else 0.0,
                "local_score": scores.local_score if scores else None,
            }
            own = sql.and_(
                _of(tables.evaluation_devices, report.run, report.round),
                _answers.device == report.device,
                _answers.outcome == "pending",
            )
            changed = connection.execute(sql.update(tables.evaluation_devices).where(own).values(**values))
            return bool(changed.rowcount)

    def close(self, record: EvaluationRecord) -> list[BlobRef] | None:
        """End an evaluation; return the blobs that nothing refers to any longer, None if it had ended already."""
        with self._transactions.write() as connection:
            if not _is_open(connection, record.run, record.round, record.number, lock=True):
                return None
            which = _of(tables.evaluations, record.run, record.round)
            connection.execute(sql.update(tables.evaluations).where(which).values(closed=self._now(connection)))
            blobs = tables.blob_references.c
            held = sql.and_(blobs.run == record.run, blobs.round == tables.EVALUATED, blobs.role == str(record.round))
            return references.release(connection, held)

    # Test sets

    def put_score(self, run: str, round_: int, score: HeldOutScore) -> None:
        """Record an evaluator's results, in place of those on a test set of that name, and their metrics."""
        with self._transactions.write() as connection:
            row = {"run": run, "round": round_, "test_set": score.test_set, "score": score.to_document()}
            insert_or_replace(connection, tables.held_out_scores, [row])
            put_metrics(connection, run, round_, score.recorded)

    def scores(self, run: str) -> list[tuple[int, HeldOutScore]]:
        """Return a run's results on test sets, by round and name."""
        found = tables.held_out_scores.c
        query = sql.select(found.round, found.score).where(found.run == run).order_by(found.round, found.test_set)
        with self._transactions.read() as connection:
            return [(row.round, HeldOutScore.from_document(row.score)) for row in connection.execute(query)]

    def _now(self, connection: sql.Connection) -> float:
        return float(connection.execute(sql.select(NOW)).scalar_one()) if self.shared else time.time()

    def _complete(self, connection: sql.Connection, found: Iterable[EvaluationRecord]) -> list[EvaluationRecord]:
        """Add the devices to evaluations."""
        now = self._now(connection)
        return [_with_devices(connection, record, record.deadline - now) for record in found]


def _record(row: sql.RowMapping) -> EvaluationRecord:
    return EvaluationRecord(
        run=row["run"],
        round=row["round"],
        number=row["number"],
        model=BlobRef(row["model_sha256"], row["model_size"]),
        opened=row["opened"],
        deadline=row["deadline"],
        closed=row["closed"],
        metric=Metric(**row["metric"]),
    )


def _with_devices(connection: sql.Connection, record: EvaluationRecord, seconds_left: float) -> EvaluationRecord:
    absent = sql.or_(_devices.device.is_(None), _devices.revoked > 0).label("gone")
    joined = tables.evaluation_devices.outerjoin(tables.devices, _devices.device == _answers.device)
    query = sql.select(tables.evaluation_devices, absent).select_from(joined)
    rows = connection.execute(
        query.where(_of(tables.evaluation_devices, record.run, record.round)).order_by(_answers.device)
    ).all()
    scored = (row for row in rows if row.outcome == "scored")
    return EvaluationRecord(
        run=record.run,
        round=record.round,
        number=record.number,
        model=record.model,
        opened=record.opened,
        deadline=record.deadline,
        closed=record.closed,
        metric=record.metric,
        scores=tuple(
            DeviceScore(device=row.device, samples=row.samples, score=row.score, local_score=row.local_score)
            for row in scored
        ),
        declined={row.device: row.reason for row in rows if row.outcome == "declined"},
        pending=frozenset(row.device for row in rows if row.outcome == "pending"),
        gone=frozenset(row.device for row in rows if row.outcome == "pending" and row.gone),
        seconds_left=seconds_left,
    )


def _one(connection: sql.Connection, run: str, round_: int, *, shared: bool = False) -> EvaluationRecord | None:
    """Return the evaluation of a global model, without its devices, locked until the transaction ends."""
    query = _EVALUATIONS.where(_of(tables.evaluations, run, round_)).with_for_update(read=shared, of=tables.evaluations)
    row = connection.execute(query).mappings().first()
    return _record(row) if row else None


def _require(found: EvaluationRecord | None, run: str, round_: int) -> EvaluationRecord:
    if found is None:
        raise NotFound(
            f"global model {round_} of run {run!r} is not being evaluated", field="global model", value=round_
        )
    return found


def _is_open(connection: sql.Connection, run: str, round_: int, number: int, *, lock: bool = False) -> bool:
    found = _one(connection, run, round_, shared=not lock)
    return found is not None and found.number == number and not found.closed


def _expect(connection: sql.Connection, run: str, round_: int, devices: Collection[str]) -> None:
    rows = [{"run": run, "round": round_, "device": device, **_PENDING} for device in sorted(devices)]
    insert_or_ignore(connection, tables.evaluation_devices, rows)


def _participants(connection: sql.Connection, run: str) -> list[str]:
    """Return the devices that took part in a run, except those removed, revoked, or ineligible by their own account."""
    drawn, answers = tables.participants.c, tables.eligibility.c
    unfit = sql.select(answers.device).where(answers.run == run, answers.reason != "")
    query = sql.select(drawn.device).join(tables.devices, _devices.device == drawn.device)
    query = query.where(drawn.run == run, _devices.revoked == 0, drawn.device.not_in(unfit))
    return list(connection.execute(query).scalars())


def rename(connection: sql.Connection, device: str, name: str) -> None:
    """Let a device's answers count under its new name, within the caller's transaction."""
    both = tables.evaluation_devices.alias()
    taken = sql.exists().where(both.c.run == _answers.run, both.c.round == _answers.round, both.c.device == name)
    which = sql.and_(_answers.device == device, ~taken)
    connection.execute(sql.update(tables.evaluation_devices).where(which).values(device=name))


def _of(table: sql.Table, run: str, round_: int) -> sql.ColumnElement[bool]:
    return sql.and_(table.c.run == run, table.c.round == round_)
