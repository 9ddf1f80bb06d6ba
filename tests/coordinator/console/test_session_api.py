"""Logging in and out, and what each role is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.console.conftest import Federation
from tests.support.console_process import ConsoleProcess, Page, console_process, log_in
from tests.support.coordinator_programs import Programs

pytestmark = pytest.mark.slow


def test_a_session_names_the_operator_and_the_permitted_calls(page: Page) -> None:
    found = page.get("/api/session")
    assert (found["operator"], found["role"], found["read_only"]) == ("operator", "admin", False)
    assert {"StopRun", "RevokeDevice", "ListAuditRecords"} <= set(found["calls"])


def test_without_a_session_nothing_is_told(console: ConsoleProcess) -> None:
    with console.client() as stranger:
        for path in ("/api/session", "/api/runs", "/api/runs/pilot/live", "/api/devices", "/api/models", "/api/audit"):
            reply = stranger.get(path)
            assert (reply.status_code, reply.json()["error"]) == (401, "log in first")


def test_the_audit_trail_is_an_admins(federation: Federation, page: Page) -> None:
    rows = page.rows("/api/audit", last="3")
    assert [row["number"] for row in rows] == sorted(row["number"] for row in rows)
    assert len(rows) == 3


def test_logging_out_ends_the_session(federation: Federation) -> None:
    with console_process("--identity", str(federation.identity), "--read-only") as console:
        page = log_in(console, console.token)
        found = page.get("/api/session")
        assert found["read_only"]
        assert {"StopRun", "RevokeDevice"}.isdisjoint(found["calls"])
        assert page.post("/api/runs/pilot/stop").json()["error"].startswith("this console is read-only")
        cookie = dict(page.client.cookies)
        assert page.post("/api/logout").status_code == 200
        assert console.client(cookies=cookie).get("/api/session").status_code == 401


@pytest.fixture
def viewer(federation: Federation, tmp_path: Path) -> Path:
    """The identity of a viewer, whom a later test may replace."""
    identity = tmp_path / "vera"
    programs = Programs(federation.fleet.tmp, federation.fleet.stack)
    programs.command("operator", "create", "vera", "--role", "viewer", "--output", str(identity))
    return identity


def test_a_viewer_sees_everything_and_changes_nothing(federation: Federation, viewer: Path) -> None:
    with console_process("--identity", str(viewer)) as console:
        page = log_in(console, console.token)
        assert {"StopRun", "ListAuditRecords"}.isdisjoint(page.get("/api/session")["calls"])
        assert page.rows("/api/runs")
        assert page.rows("/api/devices")
        reply = page.post("/api/runs/pilot/stop")
        assert (reply.status_code, reply.json()["error"]) == (
            403,
            "operator 'vera' has the role viewer; StopRun needs the role engineer or admin",
        )
        assert page.client.get("/api/audit").status_code == 403
