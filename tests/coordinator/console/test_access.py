"""Operators log in with passwords, or behind one proxy; each under their own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.console.passwords import set_password
from tests.coordinator.console.conftest import Federation
from tests.support.console_process import Page, console_process
from tests.support.coordinator_programs import Programs

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"


def test_operators_log_in_with_passwords_each_as_themselves(
    federation: Federation, engineer: Path, tmp_path: Path
) -> None:
    file = tmp_path / "passwords"
    for operator in ("operator", "ed"):
        set_password(file, operator, f"{PASSWORD} {operator}")
    options = ("--identity", str(federation.identity), "--identity", str(engineer), "--password-file", str(file))
    with console_process(*options) as console:
        assert console.link == ""
        client = console.client()
        assert client.get("/api/session").json() == {"error": "log in first", "password": True}
        headers = {"Origin": console.origin}
        wrong = client.post("/api/login", json={"operator": "ed", "password": PASSWORD}, headers=headers)
        assert (wrong.status_code, wrong.json()["error"]) == (401, "the name or the password is wrong")
        given = {"operator": "ed", "password": f"{PASSWORD} ed"}
        reply = client.post("/api/login", json=given, headers=headers)
        assert (reply.json()["operator"], reply.json()["role"]) == ("ed", "engineer")
        page = Page(client, reply.json()["csrf"])
        refused = page.post("/api/devices/cam-0/revoke")
        assert "operator 'ed' has the role engineer; RevokeDevice needs the role admin" in refused.json()["error"]


def test_a_password_needs_an_identity(federation: Federation, tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    set_password(file, "stranger", PASSWORD)
    programs = Programs(federation.fleet.tmp, federation.fleet.stack)
    output = programs.command("console", "--password-file", str(file), "--port", "0", code=3)
    assert "password-file names 'stranger'" in output
