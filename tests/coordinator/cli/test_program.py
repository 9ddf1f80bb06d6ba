"""The coordinator's command line, in processes of its own."""

from __future__ import annotations

import socket
import subprocess

import pytest

from moonfed.version import RELEASE
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, Programs

pytestmark = pytest.mark.slow


def test_a_port_that_is_taken_is_one_sentence(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("serve", "--state", str(programs.state), "--insecure", "--fleet-port", str(port))
        output = programs.command(*words, code=4)
    assert output == (
        f"moonfed-coordinator: cannot listen on 127.0.0.1:{port}: "
        "the port is taken or needs privileges, or the address is not one of this machine's "
        "(docs: errors/already-exists)\n"
    )


def test_a_wrong_address_is_named_by_its_option(programs: Programs) -> None:
    output = programs.command("device", "list", "--coordinator", "foo", code=2)
    assert (
        output == "moonfed-coordinator: coordinator is 'foo'; it must be host:port, with a port from 1 to 65535 "
        "(docs: errors/invalid-input)\n"
    )


def test_every_command_has_help_with_an_example(programs: Programs) -> None:
    commands = [
        "serve",
        *(f"token {word}" for word in ("create", "list", "revoke")),
        *(f"device {word}" for word in ("list", "show", "revoke", "remove", "rename", "label")),
        *(f"operator {word}" for word in ("create", "list", "revoke")),
        "audit",
        *(
            f"run {word}"
            for word in (
                ["start", "list", "show", "watch", "export", "pause", "resume", "stop", "weights", "prune", "delete"]
            )
        ),
    ]
    for command in [*commands, "", "run", "token", "device", "operator"]:
        done = subprocess.run(
            [*PROGRAM, *command.split(), "--help"], capture_output=True, text=True, env=ENVIRONMENT, check=True
        )
        assert f"Example: moonfed-coordinator {command}" in " ".join(done.stdout.split()), command


def test_serving_begins_with_the_release(programs: Programs) -> None:
    """An operator who has upgraded must see which release answers."""
    words = ("serve", "--state", str(programs.state), "--insecure", "--fleet-port", "0")
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout
        first = process.stdout.readline()
        process.terminate()
    assert first.split()[:2] == ["moonfed-coordinator", RELEASE]
    assert process.returncode == 0
