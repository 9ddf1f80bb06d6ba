"""The database of the first release, migrated to this release's schema and to later ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sql
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from moonfed.coordinator.storage.db import postgres, sqlite, tables
from moonfed.coordinator.storage.db.migration import RELEASED
from moonfed.coordinator.storage.store import Store
from moonfed.errors import VersionMismatch, WrongState
from tests.compatibility.first_release_files import FIRST_RELEASE
from tests.support import postgresql
from tests.support.later_migrations import (
    CONTRACTED,
    EXPANDED,
    Contents,
    contents,
    later_migrations,
    migrated,
    normalised,
)
from tests.support.refusals import refused

ROOT = Path(__file__).parents[2]
USED = {
    "runs", "rounds", "blob_references", "participants", "metrics", "eligibility", "device_reports", "device_outcomes",
    "privacy_releases", "evaluations", "devices", "certificates", "tokens", "operators", "audit_records", "releases",
    "release_blobs", "deployments", "deployed_devices", "installed_releases", "webhook_events", "draws",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the first release's SQLite database."""
    (tmp_path / "state").mkdir()
    return Path(shutil.copy(FIRST_RELEASE / "coordinator" / "coordinator.db", tmp_path / "state"))


@pytest.fixture
def database(postgresql_server: postgresql.Server) -> str:
    """The URL of a copy of the first release's PostgreSQL database."""
    url = postgresql_server.new_database()
    load = ["psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(FIRST_RELEASE / "postgresql.sql"), url]
    subprocess.run(load, check=True, capture_output=True)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def first_release(request: pytest.FixtureRequest) -> str:
    """The file or URL of the first release's database."""
    return str(request.getfixturevalue("path" if request.param == "sqlite" else "database"))


@contextmanager
def opened(place: str) -> Iterator[sql.Engine]:
    url = place.replace("postgresql:", "postgresql+psycopg:") if "://" in place else f"sqlite:///{place}"
    engine = sql.create_engine(url)
    yield engine
    engine.dispose()


def contents_of(place: str) -> Contents:
    with opened(place) as engine:
        return contents(engine)


def revision_of(place: str) -> int:
    with opened(place) as engine, engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


def test_the_committed_databases_were_used(first_release: str) -> None:
    assert {table for table, rows in contents_of(first_release).items() if rows} >= USED


def test_migrations_lead_to_the_tables_of_this_release(first_release: str) -> None:
    if "://" in first_release:
        postgres.open_store(first_release, used_before=True, backed_up=True).close()
    else:
        sqlite.open_store(Path(first_release)).close()
    with opened(first_release) as engine, engine.connect() as connection:
        options = {"compare_server_default": False}  # older rows have defaults that new tables do without
        assert compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata) == []
    assert revision_of(first_release) == RELEASED.newest


def test_a_kill_at_any_statement_loses_nothing(first_release: str, tmp_path: Path) -> None:
    before = contents_of(first_release)
    kind = "postgresql" if "://" in first_release else "sqlite"
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_migrations", kind, first_release, str(tmp_path)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    copies, migrations = json.loads(done.stdout), later_migrations(tmp_path / "migrations")
    assert len(copies) >= 15
    complete = [copy for copy in copies if revision_of(copy) == CONTRACTED]
    assert copies[-1] in complete
    assert len(complete) < len(copies) / 2
    for copy in copies:
        if copy not in complete:
            assert revision_of(copy) == RELEASED.newest
            assert normalised(contents_of(copy)) == normalised(before)
            if kind == "sqlite":
                sqlite.open_store(Path(copy), migrations).close()
            else:
                postgres.open_store(copy, used_before=True, backed_up=True, migrations=migrations).close()
        assert normalised(contents_of(copy)) == normalised(migrated(before))


def test_sqlite_is_backed_up_before_it_is_migrated(path: Path, tmp_path: Path) -> None:
    before = contents_of(str(path))
    sqlite.open_store(path, later_migrations(tmp_path / "migrations")).close()
    (backup,) = path.parent.glob("coordinator.db.before-*")
    assert contents_of(str(backup)) == before
    restored = Path(shutil.copy(backup, tmp_path / "coordinator.db"))
    store = sqlite.open_store(restored)
    assert {record.run for record in store.runs()} == {"digits", "private", "open"}
    store.close()


def test_a_downgrade_is_refused_and_changes_nothing(first_release: str, tmp_path: Path) -> None:
    migrations = later_migrations(tmp_path / "migrations")
    if "://" in first_release:
        postgres.open_store(first_release, used_before=True, backed_up=True, migrations=migrations).close()
    else:
        sqlite.open_store(Path(first_release), migrations).close()
    before = contents_of(first_release)
    with refused(VersionMismatch, "schema", CONTRACTED):
        if "://" in first_release:
            postgres.open_store(first_release, used_before=True, backed_up=True)
        else:
            sqlite.open_store(Path(first_release))
    assert contents_of(first_release) == before


def test_postgresql_is_migrated_only_with_a_backup(database: str, tmp_path: Path) -> None:
    before = contents_of(database)
    with refused(WrongState, "schema", CONTRACTED):
        postgres.open_store(database, used_before=True, migrations=later_migrations(tmp_path / "migrations"))
    assert contents_of(database) == before


def test_a_contraction_waits_for_a_backup(database: str, tmp_path: Path) -> None:
    """Else a restart without the option would be refused, though nothing but the waiting contraction is left."""
    old = postgres.open_store(database, used_before=True)
    old.online_devices.heartbeat(60)
    later = later_migrations(tmp_path / "migrations")
    postgres.open_store(database, used_before=True, backed_up=True, migrations=later).close()
    old.online_devices.withdraw()
    old.close()
    new = postgres.open_store(database, used_before=True, migrations=later)
    assert revision_of(database) == EXPANDED
    assert {record.run for record in new.runs()} == {"digits", "private", "open"}
    new.close()
    postgres.open_store(database, used_before=True).close()  # so that going back is possible until then
    postgres.open_store(database, used_before=True, backed_up=True, migrations=later).close()
    assert revision_of(database) == CONTRACTED


def test_replicas_are_upgraded_one_by_one(database: str, tmp_path: Path) -> None:
    def later(directory: str, *, contract: bool = True) -> Store:
        migrations = later_migrations(tmp_path / directory, contract=contract)
        return postgres.open_store(database, used_before=True, backed_up=True, migrations=migrations)

    old = postgres.open_store(database, used_before=True)
    old.online_devices.heartbeat(60)
    new = later("both")  # the old replica is alive: only the first migration is applied
    assert revision_of(database) == EXPANDED
    new.online_devices.heartbeat(60)
    old.online_devices.heartbeat(60)
    assert {record.run for record in old.runs()} == {record.run for record in new.runs()}
    restarted = postgres.open_store(database, used_before=True)  # of the old release
    restarted.close()
    old.online_devices.withdraw()
    later("both").close()  # the other replica is upgraded as well
    assert revision_of(database) == CONTRACTED
    with refused(VersionMismatch, "schema", CONTRACTED):
        old.online_devices.heartbeat(60)
    new.online_devices.heartbeat(60)
    for store in (old, new):
        store.close()
