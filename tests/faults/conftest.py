from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moonfed.coordinator.storage.db.postgres import open_store
from tests.coordinator.conftest import bucket, postgresql_server, s3_server
from tests.faults.fleet import SAMPLES, Coordinators, enrol_all
from tests.support.postgresql import Server

__all__ = ["bucket", "postgresql_server", "s3_server"]


@pytest.fixture
def coordinators(tmp_path: Path) -> Iterator[Coordinators]:
    """A state directory with an enrolled fleet; no coordinator serves it yet."""
    with enrolled(Coordinators(tmp_path)) as made:
        yield made


@pytest.fixture
def shared_coordinators(postgresql_server: Server, bucket: str, tmp_path: Path) -> Iterator[Coordinators]:
    """The same with its database on a PostgreSQL server and its blobs in an object store."""
    database = postgresql_server.new_database()
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    made = Coordinators(tmp_path, arguments=["--database", database, "--blobs", bucket], environment=aws)
    with enrolled(made):
        made.store = open_store(database, used_before=True)
        try:
            yield made
        finally:
            made.store.close()


@contextmanager
def enrolled(made: Coordinators) -> Iterator[Coordinators]:
    try:
        made.serve()
        enrol_all(made, list(SAMPLES))
        made.kill()
        yield made
    finally:
        made.kill()
