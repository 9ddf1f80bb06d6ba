"""The coordinator's memory: runs, rounds, receipts and metrics, in one SQL database; its registry knows the devices.

Every method is one transaction and returns when it is durable. Nothing here knows what a round means.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql

from coordinator.aggregation.offences import Offence
from coordinator.records import Answer, AttemptId, RoundRecord, RunRecord
from coordinator.rounds.retention import KEEP_ALL, Retention
from coordinator.storage import blob_refs, participants, rows, tables
from coordinator.storage.attendances import Attendances
from coordinator.storage.leases import Leases
from coordinator.storage.pulses import Pulses
from coordinator.storage.registry import Registry
from coordinator.storage.transactions import Transactions
from coordinator.storage.upsert import insert_or_ignore, insert_or_replace, insert_or_replace_if
from moonfed.blobs import BlobRef
from moonfed.errors import AlreadyExists, NotFound, WrongState
from moonfed.manifest import MANIFEST_FILE, MODEL

UNDER_WAY = ("open", "reducing")  # rounds whose end is not decided
RECEIPT_ROUNDS = 20  # of the newest ones a device's answer is kept, for whoever asks again for its receipt


class Store:
    """A database whose schema is already there; `sqlite` and `postgres` beside this module open one.

    `holder`: what this coordinator is called where others share the database; it then changes only its own runs.
    """

    def __init__(self, engine: sql.Engine, holder: str | None = None) -> None:
        self._transactions = Transactions(engine)
        self.leases = Leases(self._transactions, holder)
        self.registry = Registry(self._transactions)
        self.attendances = Attendances(self._transactions, holder)
        self.pulses = Pulses(self._transactions)

    def close(self) -> None:
        """Gives the database's files back."""
        self._transactions.close()

    # Runs

    def add_run(
        self,
        record: RunRecord,
        bundle: Mapping[str, BlobRef] | None = None,
        beside: Mapping[str, BlobRef] | None = None,
    ) -> None:
        """Keeps a new run, and that it refers to a bundle's files; AlreadyExists if the name is taken.

        `beside`: what its initial global state has beside the model, by role.
        """
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
            self.leases.take_in(connection, record.run)
            blob_refs.add(connection, record.run, tables.BUNDLE, {MANIFEST_FILE: record.manifest, **(bundle or {})})
            blob_refs.add(connection, record.run, tables.INITIAL, {MODEL: record.initial, **(beside or {})})

    def initial_state(self, run: str) -> dict[str, BlobRef]:
        """The global state that a run starts from, by role."""
        with self._transactions.read() as connection:
            return blob_refs.by_round(connection, run, tables.INITIAL, tables.INITIAL)[tables.INITIAL]

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
            self.leases.require(connection, run)
            connection.execute(sql.update(tables.runs).where(tables.runs.c.run == run).values(status=status))

    def delete_run(self, run: str) -> list[BlobRef]:
        """Forgets a run that has ended with all its rounds; the blobs that nothing refers to any more.

        Raises NotFound, or WrongState while it runs.
        """
        with self._transactions.write() as connection:
            status = _required_status(connection, run)
            if status == "running":
                raise WrongState(f"run {run!r} is running; stop it before it is deleted")
            released = blob_refs.release(connection, tables.blob_refs.c.run == run)
            for table in tables.OF_A_RUN:
                connection.execute(sql.delete(table).where(table.c.run == run))
        return released

    def prune_run(self, run: str, retention: Retention, needed: int = 1) -> tuple[int, list[BlobRef]]:
        """Forgets old global models: how many, and the blobs that nothing refers to any more; NotFound.

        `needed`: how many of the newest global states must stay whole.
        """
        with self._transactions.write() as connection:
            _required_status(connection, run)
            return blob_refs.prune(connection, run, retention.at_least(needed), needed)

    # Rounds

    def open_round(self, attempt: AttemptId, cohort: Sequence[str]) -> None:
        """A round has opened with this cohort."""
        row = {
            **rows.key(attempt),
            "status": "open",
            "cohort": list(cohort),
            "counted": [],
            "reason": "",
            "opened": time.time(),
            "seconds": 0.0,
            "offences": [],
            "bases": {},
        }
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            insert_or_ignore(connection, tables.rounds, [row])  # it may have to be tried until it is known
            participants.drawn(connection, attempt.run, cohort)

    def join_round(self, attempt: AttemptId, device: str) -> None:
        """One more device begins with the open round's model."""
        columns, here = tables.rounds.c, _same(tables.rounds, attempt)
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            cohort = connection.execute(sql.select(columns.cohort).where(here).with_for_update()).scalar_one()
            joined = sorted({*cohort, device})
            connection.execute(sql.update(tables.rounds).where(here).values(cohort=joined))
            participants.drawn(connection, attempt.run, [device])

    def begin_reducing(self, attempt: AttemptId) -> None:
        """The round takes no more answers, whoever receives them; doing so again changes nothing."""
        columns = tables.rounds.c
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            which = sql.and_(_same(tables.rounds, attempt), columns.status == "open")
            connection.execute(sql.update(tables.rounds).where(which).values(status="reducing"))

    def commit_round(
        self,
        attempt: AttemptId,
        counted: Sequence[str],
        blobs: Mapping[str, BlobRef],
        *,
        metrics: Mapping[str, float],
        metrics_before: Mapping[str, float],
        offences: Sequence[Offence] = (),
        bases: Mapping[str, int] | None = None,
        retention: Retention = KEEP_ALL,
        needed: int = 1,
    ) -> list[BlobRef]:
        """The round's global state by role, who is in it, its metrics and more of the model before it, all at once.

        `bases`: the rounds that an asynchronous round's updates began with, by device. Returns the blobs of older
        global states that nothing refers to any more: `retention` does not keep them, and the `needed` newest are
        others.
        """
        found = [[offence.device, offence.what] for offence in offences]
        changes = {"counted": list(counted), "offences": found, "bases": dict(bases or {})}
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            _close_round(connection, attempt, "committed", changes)
            participants.counted(connection, attempt, counted, bases)
            blob_refs.add(connection, attempt.run, attempt.round, blobs)
            _put_metrics(connection, attempt.run, attempt.round, metrics)
            _put_metrics(connection, attempt.run, attempt.round - 1, metrics_before)
            _forget_answers(connection, attempt.run, attempt.round - max(RECEIPT_ROUNDS, needed))
            return blob_refs.prune(connection, attempt.run, retention.at_least(needed), needed)[1]

    def abandon_round(self, attempt: AttemptId, reason: str) -> None:
        """The round came to nothing."""
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
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
        query = sql.select(tables.rounds).where(columns.run == run, columns.status.in_(("committed", "abandoned")))
        if after:
            query = query.where(sql.tuple_(columns.round, columns.attempt) > (after.round, after.attempt))
        return self._rounds(query.order_by(columns.round, columns.attempt).limit(limit))

    def participants(self, run: str) -> set[str]:
        """The devices that were in the cohort of any attempt at a round of the run."""
        with self._transactions.read() as connection:
            return participants.all_of(connection, run)

    def latest_counted(self, run: str) -> dict[str, AttemptId]:
        """For each device the latest attempt whose model has its update."""
        with self._transactions.read() as connection:
            return participants.latest_counted(connection, run)

    def _rounds(self, query: sql.Select[Any]) -> list[RoundRecord]:
        """The rounds of one run that a query finds."""
        with self._transactions.read() as connection:
            found = connection.execute(query).mappings().all()
            if not found:
                return []
            numbers = [row["round"] for row in found]
            span = (found[0]["run"], min(numbers), max(numbers))
            blobs, metrics = blob_refs.by_round(connection, *span), _metrics(connection, *span)
            return [rows.round_record(row, blobs.get(row["round"], {}), metrics.get(row["round"], {})) for row in found]

    # Blobs

    def refers_to(self, sha256: str) -> bool:
        """Whether any run needs the blob of that name."""
        with self._transactions.read() as connection:
            return blob_refs.any_to(connection, sha256)

    def add_bundle(self, run: str, files: Mapping[str, BlobRef]) -> None:
        """Keeps that a run refers to a bundle's files: one that an older release recorded without them."""
        with self._transactions.write() as connection:
            blob_refs.add(connection, run, tables.BUNDLE, files)

    def runs_without_bundle(self) -> list[RunRecord]:
        """The runs of which only the manifest is known to be referred to: those that an older release recorded."""
        columns = tables.blob_refs.c
        files = sql.select(columns.role).where(
            columns.run == tables.runs.c.run, columns.round == tables.BUNDLE, columns.role != MANIFEST_FILE
        )
        with self._transactions.read() as connection:
            found = connection.execute(sql.select(tables.runs).where(~files.exists()))
            return [rows.run_record(row) for row in found.mappings()]

    # Answers of devices

    def put_answer(self, answer: Answer) -> None:
        """Keeps a device's answer in place of an earlier one, whatever that was."""
        with self._transactions.write() as connection:
            self.leases.require(connection, answer.id.run)  # else the run's holder would not know of it
            insert_or_replace(connection, tables.answers, [rows.answer_row(answer)])

    def take_answer(self, answer: Answer) -> None:
        """Keeps a device's answer while its round is open: the receipt, if it is an accepted update.

        It may take the place of a refused one only; an accepted one stands, and the same one again changes nothing.
        Raises WrongState if the round takes none any more, AlreadyExists if a different update stands.
        """
        with self._transactions.write() as connection:
            _require_open(connection, answer.id)
            refused = tables.answers.c.outcome == "refused"
            kept = insert_or_replace_if(connection, tables.answers, rows.answer_row(answer), refused)
            standing = None if kept else self._answer(connection, answer.id, answer.device)
        if standing:
            _require_same(standing, answer)

    def _answer(self, connection: sql.Connection, attempt: AttemptId, device: str) -> Answer:
        which = sql.and_(_same(tables.answers, attempt), tables.answers.c.device == device)
        return rows.answer(connection.execute(sql.select(tables.answers).where(which)).mappings().one())

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
            raise _another_stands(device, attempt)
        return row is not None

    # Metrics

    def put_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Keeps metrics of a global model; those of the same name are replaced."""
        with self._transactions.write() as connection:
            _put_metrics(connection, run, round_, metrics)

    def metrics(self, run: str, round_: int) -> dict[str, float]:
        """The metrics of a global model, by name; round 0 stands for the initial weights."""
        with self._transactions.read() as connection:
            return _metrics(connection, run, round_, round_).get(round_, {})


def _same(table: sql.Table, attempt: AttemptId) -> sql.ColumnElement[bool]:
    return sql.and_(*(table.c[name] == value for name, value in rows.key(attempt).items()))


def _require_open(connection: sql.Connection, attempt: AttemptId) -> None:
    """Raises WrongState unless the round takes answers; it does until the connection's transaction has ended."""
    query = sql.select(tables.rounds.c.status).where(_same(tables.rounds, attempt))
    status = connection.execute(query.with_for_update(read=True)).scalar()
    if status != "open":
        raise WrongState(f"{attempt} is {status or 'unknown'}; it takes no update any more")


def _require_same(standing: Answer, answer: Answer) -> None:
    if standing.outcome == "declined":
        raise WrongState(f"{answer.device!r} has declined {answer.id}")
    if answer.outcome != "accepted":
        raise WrongState(f"{answer.device!r} has already delivered its update for {answer.id}")
    if dict(standing.blobs) != dict(answer.blobs):
        raise _another_stands(answer.device, answer.id)


def _another_stands(device: str, attempt: AttemptId) -> AlreadyExists:
    return AlreadyExists(f"a different update of {device!r} already stands in {attempt}")


def _close_round(connection: sql.Connection, attempt: AttemptId, status: str, changes: Mapping[str, Any]) -> None:
    """Closes an open round. Abandoning it once more changes nothing: it may have to be tried until it is known."""
    columns = tables.rounds.c
    query = sql.select(columns.status, columns.opened).where(_same(tables.rounds, attempt))
    found = connection.execute(query.with_for_update()).one()
    if found.status == status == "abandoned":
        return
    if found.status not in UNDER_WAY:
        raise WrongState(f"{attempt} is {found.status}; it cannot be {status}")
    seconds = max(0.0, time.time() - found.opened)  # shown only; deadlines are timed by the monotonic clock
    connection.execute(
        sql.update(tables.rounds).where(_same(tables.rounds, attempt)).values(status=status, seconds=seconds, **changes)
    )


def _required_status(connection: sql.Connection, run: str) -> str:
    """The run's status; nobody else changes the run before the transaction ends."""
    query = sql.select(tables.runs.c.status).where(tables.runs.c.run == run).with_for_update()
    status: str | None = connection.execute(query).scalar()
    if status is None:
        raise NotFound(f"there is no run {run!r}")
    return status


def _forget_answers(connection: sql.Connection, run: str, newest: int) -> None:
    """Deletes the answers of rounds up to that one: who asks so late for a receipt is told of the present round."""
    columns = tables.answers.c
    connection.execute(sql.delete(tables.answers).where(columns.run == run, columns.round <= newest))


def _metrics(connection: sql.Connection, run: str, first: int, last: int) -> dict[int, dict[str, float]]:
    """The metrics of the global models from one round to another, by round and name."""
    columns = tables.metrics.c
    query = sql.select(columns.round, columns.name, columns.value).where(
        columns.run == run, columns.round.between(first, last)
    )
    found: dict[int, dict[str, float]] = {}
    for row in connection.execute(query.order_by(columns.round, columns.name)):
        found.setdefault(row.round, {})[row.name] = row.value
    return found


def _put_metrics(connection: sql.Connection, run: str, round_: int, metrics: Mapping[str, float]) -> None:
    values = [{"run": run, "round": round_, "name": name, "value": value} for name, value in sorted(metrics.items())]
    insert_or_replace(connection, tables.metrics, values)
