"""A later release made of this tree: another setting, plan interface and contract, and two migrations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE, RELEASE
from tests.compatibility.installed_release import install, packages_of
from tests.compatibility.programs import Programs
from tests.proto.control.test_added_setting import DECLARATION
from tests.support.later_migrations import CONTRACTED, EXPANDED
from tests.support.session_cache import cached
from tools.build_release import build_wheel

LATER = "77.0.0"
LATER_CONTRACT = f"{CONTRACT_VERSION.partition('.')[0]}.77"
LATER_PLAN = "torchscript/77"
MIGRATION = '''"""{summary}."""

import sqlalchemy as sql
from alembic import op

revision, down_revision, readable_from = "{number:04}", "{previous:04}", {readable_from}


def upgrade() -> None:
    {change}
'''
MIGRATIONS = {  # by number: what it does, from which revision on the result can be used, and how
    EXPANDED: ("Add notes to runs", 0, 'op.add_column("runs", sql.Column("note", sql.Text, server_default=""))'),
    CONTRACTED: ("Drop the notes of runs", EXPANDED, 'op.drop_column("runs", "note")'),
}


def later_release(wheels: Path) -> Programs:
    """Return its programs, which are installed the first time; `wheels`: an empty directory."""

    def make(directory: Path) -> None:
        # A program knows its interpreter by its path, so the environment is made where it will be.
        final = directory.with_suffix(".environment")
        install(build_wheel(wheels), final)
        packages = packages_of(final) / "moonfed"
        edit(packages / "version.py", {RELEASE: LATER, CONTRACT_VERSION: LATER_CONTRACT, PLAN_INTERFACE: LATER_PLAN})
        file, place, added = DECLARATION
        edit(packages / Path(file).relative_to("proto/moonfed"), {place: place + added})
        for number, (summary, readable_from, change) in MIGRATIONS.items():
            names = {"number": number, "previous": number - 1, "readable_from": readable_from}
            text = MIGRATION.format(summary=summary, change=change, **names)
            (packages / f"coordinator/storage/db/migrations/v{number:04}_notes.py").write_text(text)
        directory.mkdir()

    marker = cached(b"a later release", make)
    return Programs(marker.with_suffix(".environment") / "bin")


def edit(file: Path, changes: Mapping[str, str]) -> None:
    """Replace words in a file, each of which occurs once."""
    text = file.read_text()
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    file.write_text(text)
