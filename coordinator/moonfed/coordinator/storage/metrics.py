"""Metrics of global models, by name. Each function is part of the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sql

from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.upsert import insert_or_replace

_columns = tables.metrics.c
_BY_ROUND = (
    sql.select(_columns.round, _columns.name, _columns.value)
    .where(_columns.run == sql.bindparam("run"), _columns.round.between(sql.bindparam("first"), sql.bindparam("last")))
    .order_by(_columns.round, _columns.name)
)


def put_metrics(connection: sql.Connection, run: str, round_: int, metrics: Mapping[str, float]) -> None:
    """Record metrics of a round's model, replacing those of the same name."""
    values = [{"run": run, "round": round_, "name": name, "value": value} for name, value in sorted(metrics.items())]
    insert_or_replace(connection, tables.metrics, values)


def metrics_by_round(connection: sql.Connection, run: str, first: int, last: int) -> dict[int, dict[str, float]]:
    """Return the metrics of the global models `first` to `last`, by round and name."""
    found: dict[int, dict[str, float]] = {}
    for row in connection.execute(_BY_ROUND, {"run": run, "first": first, "last": last}):
        found.setdefault(row.round, {})[row.name] = row.value
    return found
