"""`make audit`: exit codes for advisories, unknown distributions and unreachable databases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import audit
from tools.lock_requirements import CONSTRAINTS, DIRECTORY

# Answers as pip-audit does: argv[1] has the entries to change, by name, or a number for a database without an answer.
PROGRAM = """
import json, pathlib, sys
changed = json.loads(sys.argv[1])
if isinstance(changed, int):
    sys.exit("ERROR: the connection was refused")
pairs = [line.split("==") for line in pathlib.Path(sys.argv[-1]).read_text().splitlines()]
default = changed.get("*", {})
entries = [{"name": name, "version": version, "vulns": []} | changed.get(name, default) for name, version in pairs]
print(json.dumps({"dependencies": entries, "fixes": []}))
"""
ADVISORY = {"id": "PYSEC-0-0", "fix_versions": ["9.9"], "aliases": [], "description": ""}
UNKNOWN = {"skip_reason": "not found"}


def answering(changed: object) -> Sequence[str]:
    return (sys.executable, "-c", PROGRAM, json.dumps(changed))


def test_no_advisory_is_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.audit(answering({})) == 0
    count = len(audit.pins())
    assert f"{count} of {count} distributions checked with pypi: 0 advisories" in capsys.readouterr().out


def test_each_advisory_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.audit(answering({"pillow": {"vulns": [ADVISORY]}, "numpy": UNKNOWN})) == audit.FOUND
    printed = capsys.readouterr().out
    assert "PYSEC-0-0, fixed in 9.9" in printed
    assert "numpy: not checked: not found" in printed


def test_a_distribution_that_could_not_be_checked_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.audit(answering({"torch": UNKNOWN})) == audit.UNREACHABLE
    assert audit.UNREACHABLE not in (0, audit.FOUND), "not knowing is no success"
    assert "torch: not checked" in capsys.readouterr().out


@pytest.mark.parametrize(("changed", "reason"), [(1, "connection was refused"), ({"*": UNKNOWN}, "knows none of")])
def test_without_a_database_nothing_is_claimed(
    changed: object, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.audit(answering(changed)) == audit.UNREACHABLE
    printed = capsys.readouterr()
    assert not printed.out
    assert "no advisory database is reachable, so nothing was checked" in printed.err
    assert reason in printed.err


def test_every_pinned_version_is_asked_about() -> None:
    lists = audit.passes(audit.pins())
    assert sorted(pin for pinned in lists for pin in pinned) == audit.pins()
    assert all(len({name for name, _ in pinned}) == len(pinned) for pinned in lists)
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(audit.pins()) >= len(lines)
    assert (DIRECTORY / "torch.txt").exists()


def test_the_real_pip_audit_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("pip_audit")
    closed = {
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "HTTP_PROXY": "http://127.0.0.1:1",
        "NO_PROXY": "",
        "HOME": str(tmp_path),
    }
    program = "import sys; from tools import audit; audit.pins = lambda: [('six', '1.17.0')]; sys.exit(audit.audit())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CONSTRAINTS.parent,
        env=os.environ | closed | {name.lower(): value for name, value in closed.items()},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == audit.UNREACHABLE, done.stderr
    assert "nothing was checked (pypi: " in done.stderr
