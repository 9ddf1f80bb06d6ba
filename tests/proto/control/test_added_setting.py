"""Adding a setting of a run: its declaration, and the code that uses it."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.added_setting import WAYS
from tests.test_mirroring import PARTS

ROOT = Path(__file__).parents[3]
DECLARATION = (
    "proto/moonfed/control/run_settings.py",
    '    keep_last: int = setting(20, Whole(1), "Number of newest global models to keep.")\n',
    '    patience: int = setting(0, Whole(0, 999), "Seconds to be patient for.")\n',
)
CONSUMER = (
    "coordinator/moonfed/coordinator/rounds/status_text.py",
    "{eligible} eligible{kept}, {needed} needed{problems}",
    "; patient for {settings.patience} s",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources with the setting `--patience`."""
    root = tmp_path / "sources"
    for part in (*PARTS, "tests/support", "tools/reference"):
        shutil.copytree(ROOT / part, root / part)
    for package in ("tests", "tools"):
        shutil.copyfile(ROOT / package / "__init__.py", root / package / "__init__.py")
    for file, place, added in (DECLARATION, CONSUMER):
        source = (root / file).read_text()
        assert source.count(place) >= 1, file
        (root / file).write_text(source.replace(place, place + added, 1))
    return root


def changed(root: Path) -> set[str]:
    files = [path.relative_to(root) for part in PARTS for path in (root / part).rglob("*.py")]
    return {str(file) for file in files if not filecmp.cmp(root / file, ROOT / file, shallow=False)}


@pytest.mark.timeout(600)
def test_a_setting_takes_two_files(copy: Path, tmp_path: Path) -> None:
    """It is then everywhere: docs/reference is generated, and nothing else lists settings."""
    touched = changed(copy)
    assert touched == {DECLARATION[0], CONSUMER[0]}
    assert len(touched) <= 2
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(copy / part) for part in (*PARTS, "."))}
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.added_setting", str(tmp_path / "work")],
        cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(WAYS, 3)
