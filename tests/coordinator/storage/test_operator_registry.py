"""The registry of operators, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError

import pytest
import sqlalchemy as sql

from moonfed.control.codec import from_values
from moonfed.control.operators import Operator
from moonfed.coordinator.records import OperatorRecord
from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists, NotFound
from tests.coordinator.storage.conftest import Open

ANN = OperatorRecord(
    operator="ann",
    role="engineer",
    serial="1f",
    public_key_sha256="1" * 64,
    created=100.0,
    created_by="operator",
    expires=time.time() + 3600.0,
)


def test_an_operator_survives_and_is_revoked(open_store: Open) -> None:
    store = open_store()
    store.operators.create(ANN)
    assert open_store().operators.operators() == [from_values(Operator, ANN)]
    assert store.operators.revoked() == frozenset()
    (revoked,) = store.operators.revoke("ann")
    assert revoked.revoked
    assert open_store().operators.operators() == [revoked]
    assert open_store().operators.revoked() == {"1f"}
    assert store.operators.revoke("ann") == []
    with pytest.raises(NotFound, match="'bob'"):
        store.operators.revoke("bob")


def test_a_name_belongs_to_one_valid_key_and_role(store: Store) -> None:
    store.operators.create(ANN)
    store.operators.create(replace(ANN, serial="2f"))  # the reply was lost
    for other in (replace(ANN, serial="3f", public_key_sha256="2" * 64), replace(ANN, serial="3f", role="admin")):
        with pytest.raises(AlreadyExists, match="'ann'"):
            store.operators.create(other)
    assert {record.serial for record in store.operators.revoke("ann")} == {"1f", "2f"}
    store.operators.create(replace(ANN, serial="3f", role="admin"))


def test_an_expired_certificate_frees_the_name(store: Store) -> None:
    store.operators.create(replace(ANN, expires=time.time() - 1.0))
    store.operators.create(replace(ANN, serial="2f", public_key_sha256="2" * 64))


def test_a_known_certificate_is_adopted_once(store: Store) -> None:
    store.operators.adopt(ANN)
    store.operators.revoke("ann")
    store.operators.adopt(ANN)
    assert store.operators.revoked() == {"1f"}, "it stays revoked"


def test_a_name_is_created_once_at_a_time(store: Store) -> None:
    both = Barrier(2)

    def meet(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        """Let two callers find the name free at the same time, if they can."""
        if statement.startswith("SELECT operators.operator"):
            with suppress(BrokenBarrierError):
                both.wait(1.0)

    sql.event.listen(store.operators._transactions._engine, "after_cursor_execute", meet)

    def create(number: int) -> bool:
        try:
            store.operators.create(replace(ANN, serial=f"{number:x}", public_key_sha256=f"{number:064}"))
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(create, range(8))) == 1
    assert len(store.operators.operators()) == 1
