from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.serving.requests import api_keys
from moonfed.serving.requests.api_keys import ApiKeys, create_key, read_keys


def test_a_key_is_found_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    alice, root = create_key(path, "alice", admin=False), create_key(path, "root", admin=True)
    text = path.read_text()
    assert alice not in text
    assert root not in text
    assert re.fullmatch(r"alice user sha256:[0-9a-f]{64}\nroot admin sha256:[0-9a-f]{64}\n", text)
    assert path.stat().st_mode & 0o777 == 0o600
    keys = ApiKeys(path)
    found = keys.find(alice)
    assert found is not None
    assert (found.name, found.is_admin) == ("alice", False)
    assert (keys.find(root) or found).is_admin
    for wrong in ("", alice[:-1], alice + "x", alice.upper(), "sha256:" + text.split(":")[1][:64], "\ud800"):
        assert keys.find(wrong) is None


def test_a_whole_hash_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key = create_key(path, "alice", admin=False)
    text = path.read_text().rstrip("\n")
    path.write_text(text[:-1] + ("1" if text.endswith("0") else "0"))
    assert ApiKeys(path).find(key) is None


def test_keys_of_people_are_added_below_others(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# the clinic's clients\n\nbob user sha256:" + "0" * 64)
    create_key(path, "alice", admin=False)
    assert [key.name for key in read_keys(path)] == ["bob", "alice"]
    with pytest.raises(AlreadyExists, match="has a key named 'alice'; delete its line first"):
        create_key(path, "alice", admin=True)
    with pytest.raises(InvalidInput, match="name is 'a b'; it must be up to 64 letters"):
        create_key(path, "a b", admin=True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"alice", "line 1 of .* must be NAME user|admin sha256:HASH"),
        (b"# x\nalice root sha256:" + b"0" * 64, "line 2 of"),
        (b"alice user sha256:" + b"g" * 64, "line 1 of"),
        (b"alice user md5:" + b"0" * 64, "line 1 of"),
        (b"\xff", "it is not UTF-8"),
        ((b"alice user sha256:" + b"0" * 64 + b"\n") * 2, "line 2 of .* repeats the name 'alice'"),
        (b"# none\n", "has no keys; create one with `moonfed-export api-key NAME --file"),
    ],
)
def test_files_of_other_content_are_rejected(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(InvalidInput, match=sentence):
        ApiKeys(tmp_path / "keys")


def test_a_missing_file_and_a_device_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be read: No such file"):
        ApiKeys(tmp_path / "keys")
    with pytest.raises(InvalidInput, match="not a regular file"):
        ApiKeys(Path("/dev/zero"))


def test_a_changed_file_is_read_again_and_a_damaged_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api_keys, "_CHECK_SECONDS", 0.0)
    path = tmp_path / "keys"
    alice = create_key(path, "alice", admin=False)
    keys = ApiKeys(path)
    bob = create_key(path, "bob", admin=False)
    assert keys.find(bob)
    path.write_text("nonsense")
    assert keys.find(alice)
    assert "the previous 2 keys stay valid" in caplog.text
    path.unlink()
    assert keys.find(alice)
    create_key(path, "carol", admin=False)
    assert keys.find(alice) is None
    assert keys.find(bob) is None


def test_the_command_prints_a_key_once(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    shown = CliRunner().invoke(app, ["api-key", "alice", "--file", str(path)], catch_exceptions=False).output
    found = ApiKeys(path).find(shown.strip())
    assert found is not None
    assert not found.is_admin
    words = ["api-key", "root", "--admin", "--file", str(path), "--json"]
    document = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)
    assert document["name"] == "root"
    assert (ApiKeys(path).find(document["key"]) or found).is_admin
