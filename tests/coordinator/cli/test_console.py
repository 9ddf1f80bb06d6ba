"""The commands `console` and `console-password`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moonfed.coordinator.console.passwords import read_passwords
from tests.support.coordinator_programs import PROGRAM, _environment

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"


def command(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env=_environment(), input=given, check=False, timeout=60
    )


def test_a_password_is_read_from_standard_input(tmp_path: Path, forked_programs: None) -> None:
    file = tmp_path / "passwords"
    done = command("console-password", "ann", "--file", str(file), given=f"{PASSWORD}\n")
    assert (done.returncode, done.stdout) == (0, f"ann can log in with --password-file {file}\n")
    assert read_passwords(file).verify("ann", PASSWORD)
    short = command("console-password", "ann", "--file", str(file), given="short\n")
    assert short.returncode == 2
    assert "password has 5 characters" in short.stderr


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["console", "--host", "10.0.0.1"], 2, "needs --tls-cert and --tls-key"),
        (["console", "--identity", "absent"], 3, "absent holds no identity"),
        (["console", "--tls-cert", "absent", "--tls-key", "absent"], 3, "tls-cert is 'absent'"),
        (["console-password", "a:b"], 2, "operator is 'a:b'"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], code: int, problem: str, forked_programs: None) -> None:
    done = command(*words)
    assert done.returncode == code
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
