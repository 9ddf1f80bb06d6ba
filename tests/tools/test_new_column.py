"""A column of a round is added in five files, and is seen from the database to the browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from moonfed.coordinator.storage.db.migration import RELEASED

ROOT = Path(__file__).parents[2]
PARTS = ("proto", "client", "export", "serving", "release", "edge_client", "coordinator", "experiments", "tools")
CHANGES = {  # a line to find, and one to add after it
    "proto/moonfed/v1/control.proto": ("  uint64 sent_bytes = 15;\n", "  uint32 drawn = 100;\n"),
    "proto/moonfed/control/runs.py": ("    received_bytes: int = 0", "    drawn: int = 0  # devices of its cohort\n"),
    "coordinator/moonfed/coordinator/storage/db/tables.py": (
        '    Column("outcomes", JSON, nullable=False, default=dict)',
        '    Column("drawn", Integer, nullable=False, default=0),\n',
    ),
    "coordinator/moonfed/coordinator/storage/rounds.py": (
        '        "phases": dict(measured.phases),\n',
        '        "drawn": len(found.cohort),\n',
    ),
}
MIGRATION = "coordinator/moonfed/coordinator/storage/db/migrations/v{number:04}_drawn.py"
MIGRATE = '''"""Add the number of devices drawn to rounds."""

import sqlalchemy as sql
from alembic import op

revision, down_revision = "{number:04}", "{previous:04}"


def upgrade() -> None:
    op.add_column("rounds", sql.Column("drawn", sql.Integer, nullable=False, server_default="0"))
'''
OBSERVE = """
import json, os, sqlite3, sys
from contextlib import closing
from pathlib import Path
from typer.testing import CliRunner
from moonfed.client import Coordinator
from moonfed.coordinator.cli.program import app
from moonfed.coordinator.storage.db.sqlite import open_store
from tests.coordinator.conftest import fleet_in
from tests.support import console_process as consoles
from tests.support.coordinator import model_bytes

with fleet_in(Path(sys.argv[1])) as fleet:
    identity = fleet.state / "operator"
    device = fleet.device("cam-1")
    fleet.start("run")
    device.submit(device.connect().assignment(), model_bytes(1.0))
    with Coordinator(identity) as coordinator:
        list(coordinator.watch("run"))
        client = coordinator.rounds("run")[0].drawn
    with closing(sqlite3.connect(next(fleet.state.glob("*.db")))) as database:
        stored = database.execute("SELECT drawn FROM rounds").fetchone()[0]
    words = ["run", "show", "run", "--json", "--identity", str(identity)]
    shown = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
    consoles._environment = lambda: dict(os.environ)  # with the copy's modules
    with consoles.console_process("--identity", str(identity)) as console:
        row = consoles.log_in(console, console.token).get("/api/runs/run/rounds")["rows"][0]
    open_store(Path(sys.argv[2])).close()
    with closing(sqlite3.connect(sys.argv[2])) as database:
        assert {drawn for drawn, in database.execute("SELECT drawn FROM rounds")} == {0}
    seen = [stored, fleet.operator.rounds("run")[0].drawn, shown["rounds"][0]["drawn"], row["drawn"], client]
    print(json.dumps(seen))
"""


@pytest.mark.timeout(200)
def test_a_column_of_a_round_takes_five_files(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for name, (line, added) in CHANGES.items():
        text = (copy / name).read_text()
        assert text.count(line) == 1, name
        place = text.index("\n", text.index(line.rstrip("\n"))) + 1
        (copy / name).write_text(text[:place] + added + text[place:])
    number = RELEASED.newest + 1
    (copy / MIGRATION.format(number=number)).write_text(MIGRATE.format(number=number, previous=number - 1))
    old = shutil.copy(ROOT / "tests/compatibility/first_release/coordinator/coordinator.db", tmp_path)
    path = os.pathsep.join([*(str(copy / part) for part in PARTS), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    subprocess.run([sys.executable, str(copy / "tools/generate_stubs.py")], check=True, capture_output=True)
    command = [sys.executable, "-c", OBSERVE, str(tmp_path), str(old)]
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [1] * 5, "database, wire, --json, console and Python client"
    assert len([*CHANGES, MIGRATION]) <= 5
