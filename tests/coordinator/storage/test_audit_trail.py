"""The audit trail, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from moonfed.control.operators import AuditRecord
from moonfed.coordinator.storage import audit_trail
from moonfed.coordinator.storage.audit_trail import AuditFilter
from moonfed.coordinator.storage.store import Store
from moonfed.formatting import moment
from tests.coordinator.storage.conftest import Open

DONE = AuditRecord(
    time=moment(100.0),
    name="ann",
    role="engineer",
    serial="1f",
    address="10.0.0.7:51234",
    call="StopRun",
    details="stop run 'digits'",
    outcome="done",
)
DENIED = replace(DONE, time=moment(200.0), name="bob", role="viewer", outcome="denied", reason="bob may not")


def page(store: Store, after: int = 0, limit: int = 100, **chosen: object) -> list[AuditRecord]:
    return store.audit.page(AuditFilter(**chosen), after, limit)  # type: ignore[arg-type]  # the filter's fields


def test_records_survive_in_their_order(open_store: Open) -> None:
    store = open_store()
    numbers = [store.audit.add(record) for record in (DONE, DENIED)]
    assert numbers == sorted(numbers)
    expected = [replace(record, number=number) for record, number in zip((DONE, DENIED), numbers, strict=True)]
    assert page(open_store()) == expected


def test_a_pending_record_is_completed(store: Store) -> None:
    number = store.audit.add(replace(DONE, outcome="pending"))
    other = store.audit.add(replace(DONE, outcome="pending"))
    store.audit.finish(number, "failed", "stop run 'x'", "there is no run 'x'")
    failed, pending = page(store)
    assert (failed.outcome, failed.details, failed.reason) == ("failed", "stop run 'x'", "there is no run 'x'")
    assert (pending.number, pending.outcome) == (other, "pending")


def test_records_are_filtered_and_paged(store: Store) -> None:
    first, second = store.audit.add(DONE), store.audit.add(DENIED)
    third = store.audit.add(replace(DONE, time=moment(300.0), call="StartRun"))
    for chosen, numbers in (
        ({"name": "ann"}, [first, third]),
        ({"call": "StopRun"}, [first, second]),
        ({"denied": True}, [second]),
        ({"since": 200.0}, [second, third]),
        ({"name": "ann", "denied": True}, []),
    ):
        assert [record.number for record in page(store, **chosen)] == numbers, chosen
    assert [record.number for record in page(store, limit=2)] == [first, second]
    assert [record.number for record in page(store, after=second)] == [third]
    assert [record.number for record in store.audit.page(AuditFilter(), second, 9, {first})] == [first, third]


def test_the_newest_records_are_found(store: Store) -> None:
    numbers = [store.audit.add(record) for record in (DONE, DENIED, DONE, DONE)]
    assert store.audit.before_newest(AuditFilter(), 3) == numbers[0]
    assert store.audit.before_newest(AuditFilter(name="ann"), 2) == numbers[0]
    assert store.audit.before_newest(AuditFilter(), 9) == 0


def test_floods_displace_only_their_own_kind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_trail, "KEPT", 3)
    monkeypatch.setattr(audit_trail, "PRUNED_EVERY", 1)
    device = replace(DONE, name="cam-1", role="device", call="Renew")
    kinds = [DENIED, device, replace(device, outcome="denied"), replace(DENIED, role="", name="guesser")]
    for record in [DONE] * 5 + kinds * 5:
        store.audit.add(record)
    found = [(record.name, record.outcome) for record in page(store)]
    assert found[:5] == [("ann", "done")] * 5, "operators' changes are kept forever"
    assert found[5:] == [(kind.name, kind.outcome) for kind in kinds * 3]
    last = store.audit.add(DONE)
    assert last == 26, "numbers are not used again"


def test_concurrent_records_have_different_numbers(store: Store) -> None:
    with ThreadPoolExecutor(4) as threads:
        numbers = list(threads.map(store.audit.add, [DONE] * 16))
    assert sorted(numbers) == [record.number for record in page(store)]
    assert len(set(numbers)) == 16
