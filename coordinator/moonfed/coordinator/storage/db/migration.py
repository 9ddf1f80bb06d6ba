"""The database's migrations: which ones a release has, which of them it applies at once, and their application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import sqlalchemy as sql

from moonfed.errors import WrongState

_DIRECTORY = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A change of the schema. `readable_from`: the oldest revision whose release can use the result; 0: unchanged."""

    revision: str
    summary: str
    readable_from: int
    upgrade: Callable[[], None]

    @property
    def number(self) -> int:
        """The revision of the result."""
        return int(self.revision)

    @property
    def contracts(self) -> bool:
        """True if releases that used the database before cannot use it any more."""
        return self.readable_from > 0


class Migrations:
    """The migrations in some directories, which form one sequence. Alembic is imported only if any is needed."""

    def __init__(self, *directories: Path) -> None:
        self.directories = directories
        self.newest = max(int(path.name[1:5]) for directory in directories for path in directory.glob("v[0-9]*.py"))

    def after(self, number: int) -> tuple[Migration, ...]:
        """Return the migrations that a database of this revision lacks, in order."""
        if number >= self.newest:
            return ()
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory(_DIRECTORY, version_locations=self.directories)
        found = reversed(list(scripts.walk_revisions()))
        return tuple(
            Migration(
                revision=script.revision,
                summary=script.doc.rstrip("."),
                readable_from=getattr(script.module, "readable_from", 0),
                upgrade=script.module.upgrade,
            )
            for script in found
            if int(script.revision) > number
        )


RELEASED = Migrations(_DIRECTORY)


def applicable(pending: Sequence[Migration], replicas: Mapping[str, int]) -> Sequence[Migration]:
    """Return the migrations to apply now; those left out contract the schema, and wait for replicas of older releases.

    `replicas`: the schema revision of each live one's release. Raises WrongState if another migration would have to
    wait as well.
    """

    def older(migration: Migration) -> list[str]:
        return sorted(name for name, revision in replicas.items() if revision < migration.readable_from)

    now = list(takewhile(lambda migration: not older(migration), pending))
    waiting = pending[len(now) :]
    if not all(migration.contracts for migration in waiting):
        (replica, *_) = older(waiting[0])
        raise WrongState(
            f"replica {replica} is of a release that cannot use schema {waiting[0].number}, which this one needs: "
            "stop it first; nothing was changed",
            field="replica",
            value=replica,
        )
    return now


def oldest_readable(migrations: Sequence[Migration]) -> int:
    """Return the oldest revision whose release can use the result of migrations; 0: it stays what it was."""
    return max((migration.readable_from for migration in migrations), default=0)


def apply(connection: sql.Connection, migrations: Sequence[Migration]) -> None:
    """Apply migrations within the connection's transaction."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    with Operations.context(MigrationContext.configure(connection)):
        for migration in migrations:
            migration.upgrade()
