"""The devices' answers in rounds: which one stands, and which is a receipt. Each function is part of a transaction."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sql

from coordinator.records import Answer, AttemptId
from coordinator.storage import rows, tables
from coordinator.storage.upsert import insert_or_replace, insert_or_replace_if
from moonfed.blobs import BlobRef
from moonfed.errors import AlreadyExists, WrongState

_columns = tables.answers.c


def put(connection: sql.Connection, answer: Answer) -> None:
    """Keeps an answer in place of an earlier one of the device, whatever that was."""
    insert_or_replace(connection, tables.answers, [rows.answer_row(answer)])


def take(connection: sql.Connection, answer: Answer) -> None:
    """Keeps an answer, in place of a refused one only; WrongState or AlreadyExists if another one stands."""
    if insert_or_replace_if(connection, tables.answers, rows.answer_row(answer), _columns.outcome == "refused"):
        return
    which = sql.and_(rows.same(tables.answers, answer.id), _columns.device == answer.device)
    standing = rows.answer(connection.execute(sql.select(tables.answers).where(which)).mappings().one())
    if standing.outcome == "declined":
        raise WrongState(f"{answer.device!r} has declined {answer.id}")
    if answer.outcome != "accepted":
        raise WrongState(f"{answer.device!r} has already delivered its update for {answer.id}")
    _require_same_update(standing, answer.id, answer.device, answer.blobs)


def of_attempt(connection: sql.Connection, attempt: AttemptId) -> list[Answer]:
    """All in one attempt, in order of the devices' names."""
    query = sql.select(tables.answers).where(rows.same(tables.answers, attempt)).order_by(_columns.device)
    return [rows.answer(row) for row in connection.execute(query).mappings()]


def has_receipt(connection: sql.Connection, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> bool:
    """Whether exactly this update was accepted, in an attempt that was not abandoned; AlreadyExists if another was."""
    rounds = tables.rounds
    query = (
        sql.select(tables.answers)
        .join(rounds, sql.and_(*(rounds.c[name] == _columns[name] for name in ("run", "round", "attempt"))))
        .where(rows.same(tables.answers, attempt), _columns.device == device)
        .where(_columns.outcome == "accepted", rounds.c.status != "abandoned")
    )
    row = connection.execute(query).mappings().first()
    if row is None:
        return False
    _require_same_update(rows.answer(row), attempt, device, blobs)
    return True


def forget(connection: sql.Connection, run: str, newest: int) -> None:
    """Deletes those of rounds up to that one: who asks so late for a receipt is told of the present round."""
    connection.execute(sql.delete(tables.answers).where(_columns.run == run, _columns.round <= newest))


def _require_same_update(standing: Answer, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> None:
    if dict(standing.blobs) != dict(blobs):
        raise AlreadyExists(f"a different update of {device!r} already stands in {attempt}")
