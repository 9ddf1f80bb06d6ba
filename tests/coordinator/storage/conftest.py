from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moonfed.coordinator.storage.db import postgres, sqlite
from moonfed.coordinator.storage.store import Store
from tests.support import postgresql

Open = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the same database repeatedly, like killed coordinators: none is closed before the end."""
    opened: list[Store] = []
    server: postgresql.Server | None = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
    url = server.new_database() if server else ""

    def open_() -> Store:
        if url:
            opened.append(postgres.open_store(url, used_before=bool(opened)))
        else:
            opened.append(sqlite.open_store(tmp_path / "coordinator.db"))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store()
