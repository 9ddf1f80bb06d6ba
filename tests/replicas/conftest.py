from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.coordinator.storage.store import Store
from tests.coordinator.conftest import until
from tests.coordinator.storage.conftest import new_bucket, postgresql_server, s3_server
from tests.support import postgresql

__all__ = ["postgresql_server", "s3_server", "until"]


@pytest.fixture(scope="module")
def store_url(s3_server: str) -> Iterator[str]:
    """The URL of an empty place in an object store, with credentials for it in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        yield new_bucket(s3_server, patch.setenv)


@pytest.fixture
def replica(postgresql_server: postgresql.Server) -> Iterator[Callable[[], Store]]:
    """Opens the same database again and again, each time as another replica."""
    url, opened = postgresql_server.new_database(), list[Store]()

    def open_() -> Store:
        opened.append(open_store(url, used_before=False))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()
