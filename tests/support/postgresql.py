"""A real PostgreSQL server for tests: Debian's binaries, its own user, a Unix socket in its own directory."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import sqlalchemy as sql

USERS = ("postgres", "nobody")  # a server refuses to run as root


@dataclass(frozen=True)
class Server:
    directory: Path

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"d{uuid.uuid4().hex}"
        engine = sql.create_engine(
            self.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        return self.url(name)


def missing() -> str:
    """Return the reason if no server can run here, else an empty text."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install '.[postgres]'"
    return "" if _binaries() else "there is no PostgreSQL server: apt-get install postgresql"


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextmanager
def server() -> Iterator[Server]:
    """Run a server for as long as the context lasts, with PostgreSQL's default durability."""
    binaries, directory = _binaries(), Path(tempfile.mkdtemp(prefix="pg-"))
    assert binaries
    as_user: list[str] = []
    if os.geteuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        user = next(name for name in USERS if name in known)
        as_user = ["runuser", "-u", user, "--"]
        shutil.chown(directory, user)
    data, pg_ctl = directory / "data", str(binaries / "pg_ctl")

    def run(*words: str) -> None:
        subprocess.run([*as_user, *words], check=True, capture_output=True, cwd=directory)

    try:
        run(str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C.UTF-8")
        options = f"-k {directory} -c listen_addresses="
        run(pg_ctl, "start", "-w", "-D", str(data), "-l", str(directory / "log"), "-o", options)
        try:
            yield Server(directory)
        finally:
            run(pg_ctl, "stop", "-w", "-m", "immediate", "-D", str(data))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
