"""A script, a dashboard or an alert that was written for the last release still works."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.compatibility.installed_release import ROOT, Release
from tests.compatibility.interface import CLIENT, commands, demanded, offered, used_metrics

# What this release withdraws on purpose, as CHANGELOG.md says; empty after each release.
WITHDRAWN: frozenset[str] = frozenset()
DEMANDED: frozenset[str] = frozenset()  # what it has come to ask for


def test_commands_settings_exit_codes_and_metrics_are_still_there(last: Release) -> None:
    before, after = (offered(root / "docs") for root in (last.directory, ROOT))
    assert len(before) > 700
    assert before - after == WITHDRAWN


def test_no_command_demands_more(last: Release) -> None:
    before, after = (demanded(root / "docs") for root in (last.directory, ROOT))
    assert len(before) > 50
    known = commands(last.directory / "docs")
    assert {f"{command} {name}" for command, name in after - before if command in known} == DEMANDED


def test_metrics_of_alerts_and_dashboards_are_still_there(last: Release) -> None:
    used = used_metrics(last.directory / "deploy")
    assert len(used) > 20
    facts = [fact for fact in offered(ROOT / "docs") if fact.startswith(("counter", "gauge", "histogram"))]
    exported = {fact.split()[1] for fact in facts}
    assert used - exported == set()


def test_the_python_client_has_the_same_calls_and_records(last: Release) -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=True)
    before, after = last.python(CLIENT), json.loads(done.stdout)
    assert len(before) > 300
    assert before.keys() - after.keys() == set()
    assert [name for name in before.keys() & after.keys() if set(after[name]) - set(before[name])] == []
