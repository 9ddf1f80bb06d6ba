"""References to blobs, which keep them from garbage collection. Each function is part of the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.storage.db import tables

_columns, _releases = tables.blob_references.c, tables.release_blobs.c
_BY_ROUND = sql.select(tables.blob_references).where(
    _columns.run == sql.bindparam("run"), _columns.round.between(sql.bindparam("first"), sql.bindparam("last"))
)
_ANY_TO = sql.union_all(
    sql.select(sql.literal(1)).where(_columns.sha256 == sql.bindparam("sha256")),
    sql.select(sql.literal(1)).where(_releases.sha256 == sql.bindparam("sha256")),
).limit(1)
_NEWEST = sql.select(sql.func.max(_columns.round)).where(_columns.run == sql.bindparam("run"))


def add(connection: sql.Connection, run: str, round_: int, blobs: Mapping[str, BlobRef]) -> None:
    """Record that a run's round, bundle or initial state refers to these blobs, by role."""
    values = [
        {"run": run, "round": round_, "role": role, "sha256": ref.sha256, "size": ref.size}
        for role, ref in blobs.items()
    ]
    if values:
        connection.execute(sql.insert(tables.blob_references), values)


def by_round(connection: sql.Connection, run: str, first: int, last: int) -> dict[int, dict[str, BlobRef]]:
    """Return the blobs of the global states of rounds `first` to `last`, by round and role."""
    found: dict[int, dict[str, BlobRef]] = {}
    for row in connection.execute(_BY_ROUND, {"run": run, "first": first, "last": last}):
        found.setdefault(row.round, {})[row.role] = BlobRef(row.sha256, row.size)
    return found


def held(connection: sql.Connection, run: str, round_: int, role: str) -> BlobRef | None:
    """Return one blob of a round's global state, which stays referenced until the transaction ends; None if absent."""
    which = sql.and_(_columns.run == run, _columns.round == round_, _columns.role == role)
    row = connection.execute(sql.select(tables.blob_references).where(which).with_for_update()).first()
    return BlobRef(row.sha256, row.size) if row else None


def any_to(connection: sql.Connection, sha256: str) -> bool:
    """Return True if a run or a release refers to the blob."""
    return connection.execute(_ANY_TO, {"sha256": sha256}).first() is not None


def prune(connection: sql.Connection, run: str, retention: Retention, needed: int = 1) -> tuple[int, list[BlobRef]]:
    """Drop a run's older global states; return the number of models and the unreferenced blobs.

    The `needed` newest states stay complete; of the others only the model stays, without server memory, prototypes and
    the encoded model.
    """
    newest = connection.execute(_NEWEST, {"run": run}).scalar() or 0
    in_rounds = sql.and_(_columns.run == run, _columns.round > tables.INITIAL)
    outdated = sql.and_(_columns.role != MODEL, _columns.round <= newest - needed)
    old = sql.and_(_columns.role == MODEL, _columns.round <= newest - max(retention.last, needed))
    if retention.every:
        old = sql.and_(old, _columns.round % retention.every != 0)
    models = connection.execute(sql.select(sql.func.count()).select_from(tables.blob_references).where(in_rounds, old))
    return models.scalar_one(), release(connection, sql.and_(in_rounds, sql.or_(outdated, old)))


def replace(
    connection: sql.Connection, run: str, round_: int, roles: Collection[str], blobs: Mapping[str, BlobRef]
) -> list[BlobRef]:
    """Replace these roles' blobs in a round's global state; return the unreferenced ones."""
    which = sql.and_(_columns.run == run, _columns.round == round_, _columns.role.in_(sorted(roles)))
    released = release(connection, which)
    add(connection, run, round_, blobs)
    return [ref for ref in released if not any_to(connection, ref.sha256)]


def release(connection: sql.Connection, which: sql.ColumnElement[bool]) -> list[BlobRef]:
    """Delete these rows; return the blobs that nothing refers to any longer."""
    query = sql.select(_columns.sha256, _columns.size).where(which).distinct()
    blobs = [BlobRef(row.sha256, row.size) for row in connection.execute(query)]
    if blobs:
        connection.execute(sql.delete(tables.blob_references).where(which))
    return [ref for ref in blobs if not any_to(connection, ref.sha256)]
