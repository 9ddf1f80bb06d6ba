"""The outbox of webhooks: an event is recorded in the transaction of its change, and deleted once delivered."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.deployments.state import Deployment
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.formatting import iso_time

_columns = tables.webhook_events.c


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of event, such as `run.ended`, and its facts as JSON values."""

    kind: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event to be delivered now by this coordinator alone."""

    number: int
    id: str
    body: str
    attempts: int  # so far
    age: float  # seconds


def run_ended(connection: sql.Connection, run: str, status: str, reason: str) -> Event:
    """Return the event of a run that has finished, was stopped or has failed."""
    committed = sql.and_(tables.rounds.c.run == run, tables.rounds.c.status == "committed")
    last = connection.execute(sql.select(sql.func.max(tables.rounds.c.round)).where(committed)).scalar() or 0
    facts = {"run": run, "status": status, "round": last, "reason": reason}
    return Event("run.failed" if status == "failed" else "run.ended", facts)


def round_abandoned(attempt: AttemptId, reason: str, updates: int) -> Event:
    """Return the event of an attempt at a round that was abandoned."""
    facts = {"run": attempt.run, "round": attempt.round, "attempt": attempt.attempt}
    return Event("round.abandoned", {**facts, "updates": updates, "reason": reason})


def release_rolled_back(deployment: Deployment) -> Event:
    """Return the event of a deployment that was rolled back."""
    facts = {"release": deployment.name, "deployment": deployment.number, "version": deployment.version}
    return Event("release.rolled_back", {**facts, "variant": deployment.variant})


class Outbox:
    """Events in the order in which they happened. Every method but `add` is one transaction. Blocking.

    An event that the receiver refuses does not delay later ones; while the receiver is down, all wait.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.enabled = False  # otherwise nobody would deliver what is recorded

    def add(self, connection: sql.Connection, event: Event) -> None:
        """Record an event in the caller's transaction, if the coordinator has a webhook."""
        if not self.enabled:
            return
        id_, now = f"evt_{uuid.uuid4().hex}", self._now(connection)
        body = {"id": id_, "type": event.kind, "time": iso_time(now), "data": dict(event.facts)}
        row = {"id": id_, "created": now, "body": json.dumps(body, separators=(",", ":")), "attempts": 0}
        row |= {"due": now, "claimed": 0.0, "refused": False}
        connection.execute(sql.insert(tables.webhook_events).values(row))

    def open(self) -> None:
        """Record events from now on. A database of this process alone has no claims that still hold."""
        self.enabled = True
        if not self._transactions.shared:
            with self._transactions.write() as connection:
                connection.execute(sql.update(tables.webhook_events).values(claimed=0.0))

    def claim(self, seconds: float) -> Delivery | None:
        """Return the next event that is due, which no other coordinator delivers for `seconds`."""
        with self._transactions.read() as connection:
            if self._next(connection) is None:
                return None
        with self._transactions.write() as connection:
            row = self._next(connection, locked=True)
            if row is None:
                return None
            now = self._now(connection)
            self._change(connection, row.number, claimed=now + seconds)
            age = max(0.0, now - row.created)
            return Delivery(number=row.number, id=row.id, body=row.body, attempts=row.attempts, age=age)

    def remove(self, number: int) -> None:
        """Delete an event that was delivered, or is too old."""
        with self._transactions.write() as connection:
            connection.execute(sql.delete(tables.webhook_events).where(_columns.number == number))

    def postpone(self, number: int, seconds: float, *, refused: bool) -> None:
        """Record a failed attempt; the next one is due after `seconds`."""
        with self._transactions.write() as connection:
            due, attempts = self._now(connection) + seconds, _columns.attempts + 1
            self._change(connection, number, due=due, attempts=attempts, claimed=0.0, refused=refused)

    def _next(self, connection: sql.Connection, *, locked: bool = False) -> Any:  # noqa: ANN401 - a row
        """Return the first event that is due and unclaimed, unless one before it must be delivered first."""
        now = self._now(connection)
        busy = sql.or_(_columns.due > now, _columns.claimed > now)
        query = sql.select(tables.webhook_events, busy.label("busy")).order_by(_columns.number).limit(1)
        query = query.where(sql.not_(sql.and_(_columns.refused, busy)))
        if locked and self._transactions.shared:
            query = query.with_for_update()
        row = connection.execute(query).first()
        return None if row is None or row.busy else row

    def _change(self, connection: sql.Connection, number: int, **changes: object) -> None:
        connection.execute(sql.update(tables.webhook_events).where(_columns.number == number).values(**changes))

    def _now(self, connection: sql.Connection) -> float:
        return float(connection.execute(sql.select(NOW)).scalar_one()) if self._transactions.shared else time.time()
