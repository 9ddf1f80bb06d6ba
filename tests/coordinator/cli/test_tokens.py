"""The commands for join tokens, in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moonfed.errors import Untrusted
from moonfed.signing.key_files import read_trust, write_trust
from moonfed.transport import client as transport
from moonfed.transport.join_token import parse_token
from tests.support import coordinator
from tests.support.coordinator_programs import ENVIRONMENT, Programs
from tests.support.signatures import CHAIN, ROTATED


def test_a_token_contains_the_operators_trust_file_not_the_coordinators(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.serve()
    own = parse_token(json.loads(programs.command("token", "create", "--json"))["token"])
    assert own.trust == CHAIN  # of tests/conftest.py
    write_trust(programs.tmp / "engineer.json", ROTATED)
    theirs = parse_token(programs.command("token", "create", "--trust", str(programs.tmp / "engineer.json")).strip())
    assert theirs.trust == ROTATED
    monkeypatch.setitem(ENVIRONMENT, "MOONFED_KEYS", str(programs.tmp / "new"))
    made = parse_token(programs.command("token", "create").strip())
    assert made.trust == read_trust(programs.tmp / "new" / "trust.json")
    assert parse_token(programs.operator().token()).trust is None
    assert "no such file" in programs.command("token", "create", "--trust", "none.json", code=3)


def test_tokens_are_listed_and_revoked(programs: Programs) -> None:
    programs.serve()
    first = json.loads(programs.command("token", "create", "--uses", "2", "--json"))
    second = programs.command("token", "create").strip()
    identity = coordinator.enrol(programs.tmp / "cam-1", first["token"], "cam-1")
    listed = {token["id"]: token for token in json.loads(programs.command("token", "list", "--json"))}
    assert len(listed) == 2
    shown = listed[first["id"]]
    assert (shown["status"], shown["uses"], shown["uses_left"], shown["operator"]) == ("valid", 2, 1, "operator")
    assert parse_token(first["token"]).secret not in programs.command("token", "list")
    answer = programs.command("token", "revoke", first["id"])
    assert answer == f"join token {first['id']} is revoked; it was used 1 time\n"
    programs.command("token", "revoke", second)  # by the token itself
    statuses = [line.split()[1] for line in programs.command("token", "list").splitlines()[1:]]
    assert statuses == ["revoked", "revoked"]
    with pytest.raises(Untrusted, match="join token was revoked"):
        coordinator.enrol(programs.tmp / "cam-2", first["token"], "cam-2")
    with transport.open_channel(identity.address, identity) as channel:
        assert coordinator.Device("cam-1", channel).connect(), "a device that has enrolled stays"
    answer = programs.command("token", "revoke", "0" * 12, code=3)
    assert answer == f"moonfed-coordinator: there is no join token {'0' * 12!r} (docs: errors/not-found)\n"


def test_a_token_is_written_to_a_private_new_file(programs: Programs, tmp_path: Path) -> None:
    programs.serve()
    file = tmp_path / "join-token"
    answer = json.loads(programs.command("token", "create", "--output", str(file), "--json"))
    assert set(answer) == {"output", "id", "expires"}
    assert file.stat().st_mode & 0o777 == 0o600
    coordinator.enrol(tmp_path / "cam-1", file.read_text(), "cam-1")
    before = file.read_text()
    answer = programs.command("token", "create", "--output", str(file), code=4)
    assert (
        answer == f"moonfed-coordinator: output is {str(file)!r}, which exists; it must be a new file "
        "(docs: errors/already-exists)\n"
    )
    assert file.read_text() == before
    answer = programs.command("token", "create", "--output", str(tmp_path / "none" / "file"), code=3)
    assert "directory does not exist" in answer
    assert len(programs.command("token", "list").splitlines()) == 2, "none was created in vain"


def test_a_token_for_a_device_names_it(programs: Programs) -> None:
    programs.serve()
    programs.device("cam-1")
    token = programs.command("token", "create", "--device", "cam-1").strip()
    assert parse_token(token).device == "cam-1"
    assert programs.command("token", "list").splitlines()[-1].endswith("cam-1")
    assert "there is no device 'cam-7'" in programs.command("token", "create", "--device", "cam-7", code=3)
    assert "uses is 2" in programs.command("token", "create", "--device", "cam-1", "--uses", "2", code=2)
