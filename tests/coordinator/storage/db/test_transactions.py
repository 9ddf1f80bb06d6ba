"""Transactions of two stores on one database file."""

from __future__ import annotations

import threading
from pathlib import Path

from moonfed.coordinator.storage.db.sqlite import open_store
from tests.support.store_records import RUN

MOMENT = 0.5  # seconds, in which the other store would write if it could


def test_a_transaction_that_reads_first_can_write_although_another_store_wants_to(tmp_path: Path) -> None:
    stores = [open_store(tmp_path / "coordinator.db") for _ in range(2)]
    stores[0].add_run(RUN)
    written = threading.Event()

    def write() -> None:
        with stores[1]._transactions.write() as connection:
            connection.exec_driver_sql("UPDATE runs SET created = created + 1")
        written.set()

    other = threading.Thread(target=write)
    with stores[0]._transactions.write() as connection:
        before = connection.exec_driver_sql("SELECT created FROM runs").scalar_one()
        other.start()
        assert not written.wait(MOMENT)
        connection.exec_driver_sql("UPDATE runs SET created = created + 1")
    other.join()
    with stores[0]._transactions.read() as connection:
        assert connection.exec_driver_sql("SELECT created FROM runs").scalar_one() == before + 2
    for store in stores:
        store.close()
