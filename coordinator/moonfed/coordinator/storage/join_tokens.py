"""Join tokens, by the hash of their secret. Each function is part of a transaction."""

from __future__ import annotations

import time

import sqlalchemy as sql

from moonfed.control.devices import Token
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.errors import InvalidInput, NotFound

KEPT_SECONDS = 30 * 86400.0  # after its expiry
MIN_ID = 6  # characters by which a token can be named
_columns = tables.tokens.c


def add(connection: sql.Connection, secret_sha256: str, token: Token) -> None:
    """Record a new token, and delete long-expired ones."""
    created, expires = token.created.timestamp(), token.expires.timestamp()
    connection.execute(sql.delete(tables.tokens).where(_columns.expires < created - KEPT_SECONDS))
    row = {name: getattr(token, name) for name in ("operator", "uses", "uses_left", "device")}
    times = {"created": created, "expires": expires, "revoked": token.revoked.timestamp() if token.revoked else 0.0}
    connection.execute(sql.insert(tables.tokens).values(secret_sha256=secret_sha256, **times, **row))


def find(connection: sql.Connection, secret_sha256: str, *, lock: bool = False) -> Token | None:
    """Return a token; None if it is unknown. `lock`: until the end of the transaction."""
    query = sql.select(tables.tokens).where(_columns.secret_sha256 == secret_sha256)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return row_mapping.token(row) if row else None


def all_tokens(connection: sql.Connection) -> list[Token]:
    """Return all tokens, oldest first."""
    query = sql.select(tables.tokens).order_by(_columns.created, _columns.secret_sha256)
    return [row_mapping.token(row) for row in connection.execute(query).mappings()]


def use(connection: sql.Connection, secret_sha256: str) -> bool:
    """Consume one use of a token; False if it has none left."""
    unused = sql.and_(_columns.secret_sha256 == secret_sha256, _columns.uses_left > 0)
    used = connection.execute(sql.update(tables.tokens).where(unused).values(uses_left=_columns.uses_left - 1))
    return used.rowcount > 0


def revoke(connection: sql.Connection, token_id: str) -> Token:
    """Revoke the token whose id begins with `token_id`; raises NotFound for none, InvalidInput for several."""
    if len(token_id) < MIN_ID or not token_id.isalnum():
        raise InvalidInput(
            field="token", value=token_id, allowed=f"at least {MIN_ID} characters of an id in the list of tokens"
        )
    which = _columns.secret_sha256.startswith(token_id)
    found = connection.execute(sql.select(_columns.secret_sha256).where(which)).scalars().all()
    if not found:
        raise NotFound(f"there is no join token {token_id!r}", field="join token", value=token_id)
    if len(found) > 1:
        raise InvalidInput(
            field="token", value=token_id, rest=f", which {len(found)} ids begin with; give more characters"
        )
    valid = sql.and_(_columns.secret_sha256 == found[0], _columns.revoked == 0)
    connection.execute(sql.update(tables.tokens).where(valid).values(revoked=time.time()))
    token = find(connection, found[0])
    assert token  # noqa: S101 - it was found above
    return token


def revoke_of(connection: sql.Connection, device: str) -> None:
    """Revoke the tokens with which only this device may enrol."""
    which = sql.and_(_columns.device == device, _columns.revoked == 0)
    connection.execute(sql.update(tables.tokens).where(which).values(revoked=time.time()))


def rename(connection: sql.Connection, device: str, name: str) -> None:
    """Make the tokens for one device valid for its new name."""
    connection.execute(sql.update(tables.tokens).where(_columns.device == device).values(device=name))
