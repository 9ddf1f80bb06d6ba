"""The coordinator's command line, in processes of its own."""

from __future__ import annotations

import json
import socket
import subprocess

import pytest

from moonfed.join_token import parse_token
from moonfed.signing.key_files import user_trust, write_trust
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, Programs
from tests.support.signatures import ROTATED, TRUST, trust


def test_a_port_that_is_taken_is_one_sentence(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("serve", "--state", str(programs.state), "--insecure", "--fleet-port", str(port))
        told = programs.command(*words, code=4)
    assert told == (
        f"moonfed-coordinator: cannot listen on 127.0.0.1:{port}: "
        "the port is taken, or the address is not one of this machine's\n"
    )


def test_a_wrong_address_is_named_by_its_option(programs: Programs) -> None:
    told = programs.command("device", "list", "--coordinator", "foo", code=2)
    assert told == "moonfed-coordinator: coordinator is 'foo'; it must be host:port, with a port from 1 to 65535\n"


def test_a_token_contains_the_operators_trust_file_not_the_coordinators(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.serve()
    own = parse_token(json.loads(programs.command("token", "create", "--json"))["token"])
    assert own.trust == TRUST  # of tests/conftest.py
    write_trust(programs.tmp / "engineer.json", ROTATED)
    theirs = parse_token(programs.command("token", "create", "--trust", str(programs.tmp / "engineer.json")).strip())
    assert theirs.trust == trust(2, version=2)
    monkeypatch.setitem(ENVIRONMENT, "MOONFED_KEYS", str(programs.tmp / "new"))
    made = parse_token(programs.command("token", "create").strip())
    assert made.trust == user_trust(programs.tmp / "new" / "trust.json")
    assert parse_token(programs.operator().token()).trust is None
    assert "there is no such file" in programs.command("token", "create", "--trust", "none.json", code=3)


def test_every_command_has_help_with_an_example(programs: Programs) -> None:
    commands = [
        "serve",
        "token create",
        "device list",
        *(f"run {word}" for word in (["start", "list", "show", "watch", "stop", "prune", "delete"])),
    ]
    for command in [*commands, "", "run", "token", "device"]:
        done = subprocess.run(
            [*PROGRAM, *command.split(), "--help"], capture_output=True, text=True, env=ENVIRONMENT, check=True
        )
        assert f"Example: moonfed-coordinator {command}" in " ".join(done.stdout.split()), command
