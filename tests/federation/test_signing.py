"""Signatures from the engineer's command to the device's log, with every program as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.experiments.child_processes import our_program, run
from tests.federation.conftest import Federation

pytestmark = pytest.mark.slow

ONE = ("--rounds", "1")


def signed_with(keys: Path, bundle: Path, path: Path, *options: str) -> Path:
    """Copy a bundle and sign it with the keys of a directory."""
    shutil.copytree(bundle, path)
    command = [our_program("moonfed-export"), "sign", str(path), "--renew", *options]
    subprocess.run(command, check=True, env=os.environ | {"MOONFED_KEYS": str(keys)}, capture_output=True)
    return path


def test_a_device_follows_its_operators_key_through_a_rotation_and_nobody_else(
    federation: Federation, make_bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, directory = make_bundle("fedavg", epochs=1), federation.directory
    own, stranger = directory / "own", directory / "stranger"
    monkeypatch.setenv("MOONFED_KEYS", str(own))
    federation.serve()
    federation.enrol("cam-1")  # which makes the key that the join token names
    run("moonfed-export", "keys", "create", "--keys", str(stranger))
    federation.start_device("cam-1")
    federation.until_online(1)

    federation.start_run(signed_with(stranger, bundle, directory / "theirs"), "theirs", *ONE)
    waiting = federation.until("theirs", lambda seen: "not eligible" in seen.waiting).waiting
    assert "cam-1 (version 1 in" in waiting
    assert federation.log("cam-1").count("software, data or trust file") == 1

    old = next(own.glob("key-*.pem"))
    federation.start_run(signed_with(own, bundle, directory / "before"), "before", *ONE)
    federation.until_finished("before")
    run("moonfed-export", "keys", "rotate")
    federation.start_run(signed_with(own, bundle, directory / "after"), "after", *ONE)
    federation.until_finished("after")

    shown = json.loads(run("moonfed-client", "trust", "--state", str(directory / "cam-1"), "--json"))
    assert shown["trust"]["version"] == 2
    stolen = directory / "stolen"
    stolen.mkdir()
    shutil.copy(old, stolen / old.name)
    shutil.copy(directory / "before" / "signature.json", stolen)
    trust = json.loads((stolen / "signature.json").read_bytes())["trust"]
    (stolen / "trust.json").write_text(json.dumps(trust, sort_keys=True, separators=(",", ":")))
    federation.start_run(signed_with(stolen, bundle, directory / "late"), "late", *ONE)
    federation.until("late", lambda seen: "not eligible: cam-1 (the bundle is signed by" in seen.waiting)

    shutil.copy(stranger / "trust.json", directory / "stranger.json")
    output = run("moonfed-client", "trust", str(directory / "stranger.json"), "--state", str(directory / "cam-1"))
    assert "trusts bundles signed with" in output
    federation.kill("cam-1")
    federation.start_device("cam-1")
    federation.until_finished("theirs")


def test_an_unsigned_bundle_starts_no_run(federation: Federation, make_bundle: Callable[..., Path]) -> None:
    federation.serve()
    shutil.copytree(make_bundle("fedavg", epochs=1), federation.directory / "unsigned")
    (federation.directory / "unsigned" / "signature.json").unlink()
    command = [
        our_program("moonfed-coordinator"),
        "run",
        "start",
        str(federation.directory / "unsigned"),
        *federation.operator,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 12
    assert done.stderr.startswith(f"moonfed-coordinator: {federation.directory / 'unsigned'}: ")
    assert done.stderr.endswith(" (docs: errors/bundle-rejected)\n")
