"""The devices' answers in rounds: which one stands, and which is a receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sql

from moonfed.blobs import BlobRef
from moonfed.coordinator.records import Answer, AttemptId
from moonfed.coordinator.storage import rounds
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_replace, insert_or_replace_if
from moonfed.coordinator.storage.leases import Leases
from moonfed.errors import AlreadyExists, MoonfedError, WrongState

_columns = tables.answers.c
T = TypeVar("T")


class Answers:
    """Every method is one transaction and returns when it is durable."""

    def __init__(self, transactions: Transactions, leases: Leases) -> None:
        self._transactions, self._leases = transactions, leases

    def put(self, answer: Answer) -> None:
        """Keeps a device's answer in place of an earlier one, whatever that was."""
        with self._transactions.write() as connection:
            self._leases.require(connection, answer.id.run)  # else the run's holder would not know of it
            insert_or_replace(connection, tables.answers, [row_mapping.answer_row(answer)])

    def take(self, answer: Answer) -> None:
        """Keeps a device's answer while its round is open: the receipt, if it is an accepted update.

        It may take the place of a refused one only; an accepted one stands, and the same one again changes nothing.
        Raises WrongState if the round takes none any more, AlreadyExists if a different update stands.
        """
        for problem in self.take_all([answer]):
            if problem:
                raise problem

    def take_all(self, given: Sequence[Answer]) -> list[MoonfedError | None]:
        """The same for several, in one transaction: what would be raised of each."""
        with self._transactions.write() as connection:
            attempts = {answer.id for answer in given}
            closed = {attempt: _problem(rounds.require_open, connection, attempt) for attempt in attempts}
            return [closed[answer.id] or _problem(_take, connection, answer) for answer in given]

    def of(self, attempt: AttemptId) -> list[Answer]:
        """All in one attempt, in order of the devices' names."""
        query = sql.select(tables.answers).where(row_mapping.same(tables.answers, attempt)).order_by(_columns.device)
        with self._transactions.read() as connection:
            return [row_mapping.answer(row) for row in connection.execute(query).mappings()]

    def has_receipt(self, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> bool:
        """Whether exactly this update of the device was accepted, in an attempt that was not abandoned.

        Raises AlreadyExists if a different one was.
        """
        columns = tables.rounds.c
        query = (
            sql.select(tables.answers)
            .join(tables.rounds, sql.and_(*(columns[name] == _columns[name] for name in ("run", "round", "attempt"))))
            .where(row_mapping.same(tables.answers, attempt), _columns.device == device)
            .where(_columns.outcome == "accepted", columns.status != "abandoned")
        )
        with self._transactions.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is not None:
            _require_same_update(row_mapping.answer(row), attempt, device, blobs)
        return row is not None


def forget(connection: sql.Connection, run: str, newest: int) -> None:
    """Deletes those of rounds up to that one: who asks so late for a receipt is told of the present round."""
    connection.execute(sql.delete(tables.answers).where(_columns.run == run, _columns.round <= newest))


def _take(connection: sql.Connection, answer: Answer) -> None:
    """Keeps an answer, in place of a refused one only; WrongState or AlreadyExists if another one stands."""
    if insert_or_replace_if(connection, tables.answers, row_mapping.answer_row(answer), _columns.outcome == "refused"):
        return
    which = sql.and_(row_mapping.same(tables.answers, answer.id), _columns.device == answer.device)
    standing = row_mapping.answer(connection.execute(sql.select(tables.answers).where(which)).mappings().one())
    if standing.outcome == "declined":
        raise WrongState(f"{answer.device!r} has declined {answer.id}")
    if answer.outcome != "accepted":
        raise WrongState(f"{answer.device!r} has already delivered its update for {answer.id}")
    _require_same_update(standing, answer.id, answer.device, answer.blobs)


def _require_same_update(standing: Answer, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> None:
    if dict(standing.blobs) != dict(blobs):
        raise AlreadyExists(f"a different update of {device!r} already stands in {attempt}")


def _problem(work: Callable[[sql.Connection, T], None], connection: sql.Connection, item: T) -> MoonfedError | None:
    """What the work raises of ours."""
    try:
        work(connection, item)
    except MoonfedError as problem:
        return problem
    return None
