"""A new project: its own test passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moonfed.errors import InvalidInput
from moonfed.experiments.child_processes import run
from moonfed.experiments.new_project import FILES, write_project
from tests.support.forked_programs import ROOT
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

PYTEST = """import sys, pytest, tests.support.forked_programs as programs; programs.fork_programs()
sys.exit(pytest.main())"""


@pytest.mark.usefixtures("forked_programs")  # as in tests/test_notebook.py
@pytest.mark.timeout(400)
def test_a_new_projects_test_passes(tmp_path: Path) -> None:
    printed = run("moonfed-experiments", "new", str(tmp_path / "churn"))
    assert printed.splitlines() == [str(tmp_path / "churn" / name) for name in FILES]
    assert (tmp_path / "churn" / "README.md").read_text().startswith("# churn\n")
    words = [sys.executable, "-c", PYTEST, "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_project.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path / "churn", capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_project_replaces_nothing(tmp_path: Path) -> None:
    write_project(tmp_path / "a")
    with refused(InvalidInput, "name"):
        write_project(tmp_path / "a")
    with refused(InvalidInput, "name", "a b"):
        write_project(tmp_path / "a b")
