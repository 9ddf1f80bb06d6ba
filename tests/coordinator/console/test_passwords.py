"""The password file."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.console.passwords import read_passwords, set_password
from moonfed.errors import InvalidInput, NotFound
from tests.support.refusals import refused


def test_passwords_are_set_replaced_and_verified(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    set_password(file, "ann", "correct horse battery")
    set_password(file, "ben", "another good password")
    set_password(file, "ann", "a newer, better one")
    passwords = read_passwords(file)
    assert passwords.operators == {"ann", "ben"}
    assert passwords.verify("ann", "a newer, better one")
    assert not passwords.verify("ann", "correct horse battery")
    assert not passwords.verify("ben", "a newer, better one")
    assert not passwords.verify("nobody", "nobody's")
    assert "better" not in file.read_text()
    assert file.read_text().count("$argon2id$") == 2
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "holds no password"),
        ("# only a comment\n", "holds no password"),
        ("ann:secret\n", "line 1 of"),
        ("ann:$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaGhhc2hoYXNoaGFzaA\n", "a hash of Argon2id"),
        (":$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaGhhc2hoYXNoaGFzaA\n", "must be OPERATOR:HASH"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "passwords"
    file.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        read_passwords(file)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_file_and_a_short_password_are_rejected(tmp_path: Path) -> None:
    with refused(NotFound, "password-file"):
        read_passwords(tmp_path / "absent")
    with refused(InvalidInput, "length of password", 5):
        set_password(tmp_path / "passwords", "ann", "short")
