"""Join tokens: their list, their ids and when they are forgotten."""

from __future__ import annotations

import time

from moonfed.coordinator.storage.store import Store
from moonfed.errors import InvalidInput, NotFound
from tests.support.device_certificates import token_record
from tests.support.refusals import refused

DAY = 86400.0


def test_tokens_are_listed_without_their_hashes_until_a_month_after_they_expire(store: Store) -> None:
    now = time.time()
    for days, secret in ((31, "b"), (2, "c")):
        created = now - days * DAY
        store.devices.add_token(secret * 64, token_record(created=created, expires=created + 60.0))
    assert [token.id for token in store.devices.tokens()] == ["b" * 12, "c" * 12]
    store.devices.add_token("d" * 64, token_record(uses=5))
    assert [(token.id, token.uses_left) for token in store.devices.tokens()] == [("c" * 12, 1), ("d" * 12, 5)]
    assert {token.operator for token in store.devices.tokens()} == {"anna"}


def test_a_token_is_revoked_by_the_beginning_of_its_id(store: Store) -> None:
    for secret in ("abcdef1", "abcdef2", "123456"):
        store.devices.add_token(secret.ljust(64, "0"), token_record())
    revoked = store.devices.revoke_token("123456")
    assert revoked.revoked
    assert store.devices.revoke_token("123456") == revoked, "again"
    assert [bool(token.revoked) for token in store.devices.tokens()].count(True) == 1
    with refused(InvalidInput, "token"):
        store.devices.revoke_token("abcdef")
    for short in ("", "12345", "12345%", "______"):
        with refused(InvalidInput, "token"):
            store.devices.revoke_token(short)
    with refused(NotFound, "join token", "999999"):
        store.devices.revoke_token("999999")
