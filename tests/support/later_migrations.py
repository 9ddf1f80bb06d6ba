"""Two migrations of a later release: one that adds columns, and one that drops and renames what they replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.storage.db.migration import RELEASED, Migrations

EXPANDED, CONTRACTED = RELEASED.newest + 1, RELEASED.newest + 2
_EXPAND = f'''"""Add a note to runs, and devices' software beside their release."""

import sqlalchemy as sql
from alembic import op

revision, down_revision = "{EXPANDED:04}", "{RELEASED.newest:04}"


def upgrade() -> None:
    op.add_column("runs", sql.Column("note", sql.Text, nullable=False, server_default="none"))
    op.add_column("devices", sql.Column("software", sql.Text, nullable=False, server_default=""))
    op.execute("UPDATE devices SET software = release")
'''
_CONTRACT = f'''"""Drop devices' release and participants' clips, and call the reasons of rounds explanations."""

from alembic import op

revision, down_revision = "{CONTRACTED:04}", "{EXPANDED:04}"
readable_from = {EXPANDED}


def upgrade() -> None:
    op.execute("UPDATE devices SET software = release WHERE software = ''")  # enrolled by the previous release
    with op.batch_alter_table("devices") as devices:
        devices.drop_column("release")
    with op.batch_alter_table("participants") as participants:
        participants.drop_column("clipped")
    with op.batch_alter_table("rounds") as rounds:
        rounds.alter_column("reason", new_column_name="explanation")
'''
Contents = dict[str, list[dict[str, Any]]]


def later_migrations(directory: Path, *, contract: bool = True) -> Migrations:
    """Return the migrations of a release after this one; without `contract`, of the one before that."""
    directory.mkdir(exist_ok=True)
    (directory / f"v{EXPANDED:04}_expand.py").write_text(_EXPAND)
    if contract:
        (directory / f"v{CONTRACTED:04}_contract.py").write_text(_CONTRACT)
    return Migrations(*RELEASED.directories, directory)


def contents(engine: sql.Engine) -> Contents:
    """Return the rows of all tables, apart from those about the schema itself."""
    found = sorted(set(sql.inspect(engine).get_table_names()) - {"alembic_version", "schema"})
    with engine.connect() as connection:
        return {
            table: [dict(row) for row in connection.execute(sql.select("*").select_from(sql.table(table))).mappings()]
            for table in found
        }


def migrated(before: Contents) -> Contents:
    """Return the rows that must be in the database after both migrations."""
    runs = [{**row, "note": "none"} for row in before["runs"]]
    devices = [{**_without(row, "release"), "software": row["release"]} for row in before["devices"]]
    rounds = [{**_without(row, "reason"), "explanation": row["reason"]} for row in before["rounds"]]
    participants = [_without(row, "clipped") for row in before["participants"]]
    return {**before, "runs": runs, "devices": devices, "rounds": rounds, "participants": participants}


def normalised(found: Contents) -> Contents:
    """Return the rows with columns and rows in one order."""
    return {
        table: sorted(({name: row[name] for name in sorted(row)} for row in rows), key=repr)
        for table, rows in found.items()
    }


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}
