"""A script, a dashboard or an alert that was written for the last release still works."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.compatibility.installed_release import ROOT, Release
from tests.compatibility.interface import CLIENT, commands, demanded, offered, used_metrics

# What this release withdraws on purpose, as CHANGELOG.md says; empty after each release.
WITHDRAWN: frozenset[str] = frozenset()
DEMANDED: frozenset[str] = frozenset()  # what it has come to ask for
Client = Mapping[str, Sequence[str]]  # the names of the Python client, and what must be given to them


@pytest.fixture(scope="module")
def clients(last: Release) -> tuple[Client, Client]:
    """The Python clients of both releases."""
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=True)
    return last.python(CLIENT), json.loads(done.stdout)


def test_whatever_scripts_use_is_still_there(last: Release, clients: tuple[Client, Client]) -> None:
    before, after = (
        offered(root / "docs") | set(client) for root, client in zip((last.directory, ROOT), clients, strict=True)
    )
    assert len(before) > 1200
    assert before - after == WITHDRAWN


def test_no_command_and_no_call_demands_more(last: Release, clients: tuple[Client, Client]) -> None:
    before, after = (
        demanded(root / "docs") | {(call, name) for call, names in client.items() for name in names}
        for root, client in zip((last.directory, ROOT), clients, strict=True)
    )
    assert len(before) > 100
    known = commands(last.directory / "docs") | set(clients[0])
    assert {f"{of} {name}" for of, name in after - before if of in known} == DEMANDED


def test_metrics_of_alerts_and_dashboards_are_still_there(last: Release) -> None:
    used = used_metrics(last.directory / "deploy")
    assert len(used) > 20
    facts = [fact for fact in offered(ROOT / "docs") if fact.startswith(("counter", "gauge", "histogram"))]
    exported = {fact.split()[1] for fact in facts}
    assert used - exported == set()
