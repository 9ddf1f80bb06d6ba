"""The commands that create, show and rotate keys, and sign with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.bundle.files import read_bundle
from moonfed.cli.program import app
from moonfed.signing.bundle_signature import signed_by
from moonfed.signing.key_files import read_trust
from tests.cli.conftest import TABLE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]


def test_keys_are_created_shown_rotated_and_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")

    def call(*words: str) -> str:
        return runner.invoke(app, [*words], catch_exceptions=False).output

    call(*TABLE, "--output", path, "--bundle-version", "3")
    assert "signature version 3 by " in " ".join(call("inspect", path).split())
    monkeypatch.setenv("MOONFED_KEYS", str(tmp_path / "keys"))
    made = json.loads(call("keys", "create", "--json"))
    assert Path(made["key"]).parent == tmp_path / "keys"
    assert "version 1, threshold 1" in call("keys", "show")
    assert call("sign", path, "--bundle-version", "4") == f"{path} is signed as version 4\n"
    before = read_trust(Path(made["trust"])).verify()
    assert read_bundle(Path(path), signed_by(before))
    assert "is version 2" in call("keys", "rotate")
    shown = json.loads(call("keys", "show", "--json"))
    assert (shown["version"], [key["private"] for key in shown["keys"]]) == (2, [True])
    assert json.loads(call("sign", path, "--renew", "--json", "--bundle-version", "5"))["version"] == 5
    after = read_trust(Path(made["trust"])).verify()
    assert read_bundle(Path(path), signed_by(before))
    assert read_bundle(Path(path), signed_by(after))
    joint = call("keys", "rotate", "--add", made["key"].replace(".pem", ".pub"), "--threshold", "2")
    assert "is version 3" in joint  # both private keys are here
    other = str(tmp_path / "other")
    stranger = json.loads(call("keys", "create", "--keys", other, "--json"))
    pending = call("keys", "rotate", "--add", stranger["key"].replace(".pem", ".pub"), "--threshold", "3")
    assert "trust-4.json needs more signatures (version 4 of the trust file is not signed by 3 of its" in pending
    signed = call("sign", str(tmp_path / "keys" / "trust-4.json"), "--sign", stranger["key"])
    assert "is version 4" in signed
