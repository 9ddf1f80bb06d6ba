from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moonfed.coordinator.storage.db import postgres, sqlite
from moonfed.coordinator.storage.store import Store
from tests.support import postgresql

Open = Callable[[], Store]


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.Server]:
    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same database again and again, as coordinators that were killed do: none is closed before the end."""
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


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The endpoint of an S3 server."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'moonfed[s3]'")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def new_bucket(endpoint: str, setenv: Callable[[str, str], None]) -> str:
    """The URL of an empty place in an object store, with credentials for it in the environment."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        setenv(name, value)
    from botocore.session import get_session

    name = f"b{uuid.uuid4().hex}"
    get_session().create_client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/fleet"


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_bucket(s3_server, monkeypatch.setenv)
