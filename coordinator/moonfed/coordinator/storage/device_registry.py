"""The registry of devices, with their keys, and of join tokens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.records import DeviceRecord
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.errors import AlreadyExists, Untrusted, WrongState

_CHANGE = sql.update(tables.devices).where(tables.devices.c.device == sql.bindparam("of_device"))
_AUTHORITY = 0x6D6F6F61  # a lock of the server's: two coordinators may start at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The stored part of a join token."""

    uses_left: int
    expires: float


class DeviceRegistry:
    """Devices and join tokens; every method is one transaction and returns when it is durable."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def require_authority(self, sha256: str) -> None:
        """Record the authority that all coordinators on a shared database use; WrongState if it is another one."""
        if not self._transactions.shared:
            return
        with self._transactions.write() as connection:
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_AUTHORITY)))
            known = connection.execute(sql.select(tables.authority.c.sha256)).scalar()
            if known is None:
                connection.execute(sql.insert(tables.authority).values(sha256=sha256))
        if known not in (None, sha256):
            raise WrongState(
                "this state directory's authority is not the one that the other coordinators on this database have: "
                "put a copy of their authority/ in its place and start again"
            )

    def devices(self) -> list[DeviceRecord]:
        """Return all known devices, sorted by name."""
        with self._transactions.read() as connection:
            found = connection.execute(sql.select(tables.devices).order_by(tables.devices.c.device))
            return [row_mapping.device_record(row) for row in found.mappings()]

    def count(self) -> int:
        """Return the number of known devices."""
        with self._transactions.read() as connection:
            number: int = connection.execute(sql.select(sql.func.count()).select_from(tables.devices)).scalar_one()
        return number

    def revoked(self) -> frozenset[str]:
        """Return the devices whose certificates are no longer accepted."""
        with self._transactions.read() as connection:
            query = sql.select(tables.devices.c.device).where(tables.devices.c.revoked > 0)
            return frozenset(connection.execute(query).scalars())

    def enrol(self, device: str, public_key_sha256: str, secret_sha256: str, certificate_expires: float) -> bool:
        """Record a device's certificate and consume one use of a token; False if the token has none left.

        A device that repeats the request with its key and its last token does not consume a use, since a reply may be
        lost. Raises AlreadyExists if the name belongs to another key, Untrusted if the device was revoked.
        """
        columns, now = tables.devices.c, time.time()
        known = (columns.public_key_sha256, columns.secret_sha256, columns.revoked)
        query = sql.select(*known).where(columns.device == device)
        token = sql.select(tables.tokens.c.uses_left).where(tables.tokens.c.secret_sha256 == secret_sha256)
        changes = {"certificate_expires": certificate_expires, "secret_sha256": secret_sha256}
        new = {"device": device, "enrolled": now, "last_seen": now, "platform": {}, "revoked": 0.0}
        with self._transactions.write() as connection:
            connection.execute(token.with_for_update())  # one enrolment at a time, of those with this token
            held = connection.execute(query.with_for_update()).first()
            if held and held.public_key_sha256 != public_key_sha256:
                raise _taken(device)
            if held and held.revoked:
                raise Untrusted(f"device {device!r} was revoked by an operator; it may not enrol again")
            asks_again = held is not None and held.secret_sha256 == secret_sha256
            if not asks_again and not _use_token(connection, secret_sha256):
                return False
            if held:
                connection.execute(_CHANGE, {"of_device": device, **changes})
            else:
                row = {**new, **changes, "public_key_sha256": public_key_sha256}
                try:
                    connection.execute(sql.insert(tables.devices).values(row))
                except sql.exc.IntegrityError as error:  # with another token, at the same time
                    raise _taken(device) from error
        return True

    def renewed(self, device: str, public_key_sha256: str, certificate_expires: float) -> None:
        """Record a device's renewed certificate for this key."""
        changes = {"certificate_expires": certificate_expires, "public_key_sha256": public_key_sha256}
        with self._transactions.write() as connection:
            connection.execute(_CHANGE, {"of_device": device, **changes})

    def seen(self, device: str, platform: Mapping[str, str] | None = None) -> None:
        """Record that a device has called; one that never enrolled (no TLS) becomes known."""
        now = time.time()
        changes: dict[str, Any] = {"last_seen": now} | ({"platform": dict(platform)} if platform is not None else {})
        new = {"device": device, "enrolled": now, "certificate_expires": 0.0, "platform": {}}
        new |= {"public_key_sha256": "", "secret_sha256": "", "revoked": 0.0}
        with self._transactions.write() as connection:
            if not connection.execute(_CHANGE, {"of_device": device, **changes}).rowcount:
                insert_or_ignore(connection, tables.devices, [{**new, **changes}])

    def add_token(self, secret_sha256: str, uses: int, expires: float) -> None:
        """Record a new join token by its secret's hash."""
        row = {"secret_sha256": secret_sha256, "uses_left": uses, "expires": expires}
        with self._transactions.write() as connection:
            connection.execute(sql.insert(tables.tokens).values(row))

    def token(self, secret_sha256: str) -> Token | None:
        """Return a join token; None if it is unknown."""
        columns = tables.tokens.c
        query = sql.select(columns.uses_left, columns.expires).where(columns.secret_sha256 == secret_sha256)
        with self._transactions.read() as connection:
            row = connection.execute(query).first()
        return Token(uses_left=row.uses_left, expires=row.expires) if row else None


def _taken(device: str) -> AlreadyExists:
    return AlreadyExists(f"there is already a device {device!r}; give another name")


def _use_token(connection: sql.Connection, secret_sha256: str) -> bool:
    token = tables.tokens.c
    used = connection.execute(
        sql.update(tables.tokens)
        .where(token.secret_sha256 == secret_sha256, token.uses_left > 0)
        .values(uses_left=token.uses_left - 1)
    )
    return used.rowcount > 0
