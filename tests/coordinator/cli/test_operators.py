"""The commands for operators, as an admin on one machine and an operator on another would use them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from moonfed.control.operators import Operator
from moonfed.coordinator.cli.operators import operator_document, operator_status
from moonfed.formatting import moment
from tests.support import coordinator
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, Programs


def command(programs: Programs, identity: Path, *words: str, code: int = 0) -> str:
    """Return the output of a command with an identity in the environment; its error message if it is to fail."""
    environment = ENVIRONMENT | {"MOONFED_IDENTITY": str(identity)}
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def test_an_operator_works_from_another_machine_until_they_are_revoked(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    ann = programs.tmp / "ann"
    answer = programs.command("operator", "create", "ann", "--role", "viewer", "--output", str(ann))
    assert answer.startswith(f"{ann} is the identity of operator ann with the role viewer, until 20")
    assert json.loads((ann / "coordinator.json").read_text())["address"] == f"localhost:{programs.ports[0]}"
    assert ann.stat().st_mode & 0o077 == 0
    assert sorted(file.name for file in ann.iterdir()) == ["ca.pem", "certificate.pem", "coordinator.json", "key.pem"]
    assert json.loads(command(programs, ann, "run", "list", "--json")) == []
    denied = command(programs, ann, "token", "create", code=5)
    assert denied.endswith(
        "operator 'ann' has the role viewer; CreateToken needs the role admin (docs: errors/permission-denied)\n"
    )
    again = programs.command("operator", "create", "ann", "--role", "admin", "--output", str(ann), code=4)
    assert again.endswith(
        f"output is {str(ann)!r}, which exists; it must be a new directory (docs: errors/already-exists)\n"
    )
    other = programs.tmp / "other"
    again = programs.command("operator", "create", "ann", "--role", "admin", "--output", str(other), code=4)
    assert again.endswith(
        "there is already an operator 'ann'; revoke it first, or give another name (docs: errors/already-exists)\n"
    )
    wrong = programs.command("operator", "create", "bob", "--role", "root", "--output", str(other), code=2)
    assert "role is 'root'" in wrong
    assert [path.name for path in programs.tmp.iterdir() if "other" in path.name] == [], "nothing is left behind"
    listed = programs.command("operator", "list")
    assert [line.split()[0] for line in listed.splitlines()] == ["operator", "ann", "operator"]
    assert max(map(len, listed.splitlines())) <= 80
    revoked = programs.command("operator", "revoke", "ann")
    assert revoked.startswith("operator ann is revoked; rejected certificates: ")
    assert "was already revoked" in programs.command("operator", "revoke", "ann")
    assert "there is no operator 'bob'" in programs.command("operator", "revoke", "bob", code=3)
    documents = json.loads(programs.command("operator", "list", "--json"))
    assert [(document["operator"], document["status"]) for document in documents] == [
        ("ann", "revoked"),
        ("operator", "valid"),
    ]


def test_a_name_that_nobody_can_have_is_one_sentence_and_leaves_nothing_behind(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    coordinator.bundle_directory(programs.tmp / "bundle")
    before = sorted(programs.tmp.iterdir())
    create = ("operator", "create", "--role", "viewer", "--output", str(programs.tmp / "new"))
    for name in ("a" * 64, "a" * 65, ""):
        assert f"operator is {name!r}" in programs.command(*create, name, code=2)
    start = ("run", "start", str(programs.tmp / "bundle"), "--name")
    assert f"name is {'a' * 65!r}" in programs.command(*start, "a" * 65, code=2)
    assert sorted(programs.tmp.iterdir()) == before


def test_an_expired_certificate_is_shown_as_such() -> None:
    operator = Operator(operator="ann", role="viewer", serial="1f", created=moment(1.0), expires=moment(2.0))
    assert operator_status(operator) == "expired"
    assert operator_document(operator) == {
        "operator": "ann",
        "role": "viewer",
        "serial": "1f",
        "expires": "1970-01-01T00:00:02Z",
        "created": "1970-01-01T00:00:01Z",
        "created_by": "",
        "revoked": None,
        "status": "expired",
    }
