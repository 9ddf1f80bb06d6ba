"""A device goes on with the state that the first release wrote: tools/first_release.py says what is in it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from moonfed.blobs.store import ref_of_bytes, ref_of_file
from moonfed.blobs.tensors import open_model
from moonfed.bundle.manifest import MODEL, OWN_FILE, PERSONAL, Manifest
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.edge_client.state.local_models import find_local_model
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.edge_client.state.round_store import RunState, newest_samples
from moonfed.edge_client.state.state_version import note_version
from moonfed.edge_client.state.trust import load
from moonfed.experiments.child_processes import run
from moonfed.sandbox.policy import available_level
from moonfed.signing.key_files import read_trust
from moonfed.transport.identity import signing_request
from tests.compatibility.first_release_files import EXPECTED, FIRST_RELEASE

PATIENCE = 60.0  # seconds
NOWHERE = "127.0.0.1:9"
REWRITTEN = ("lock",)  # at each start


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A copy of the device's state, as private as it was."""
    copy = shutil.copytree(FIRST_RELEASE / "device", tmp_path / "device", symlinks=True)
    copy.chmod(0o700)
    return copy


def contents(state: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(state)): path for path in state.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in REWRITTEN}


def manifest_of(state: Path) -> tuple[Manifest, str]:
    """The manifest of the bundle with personal tensors, and its sha256."""
    facts = json.loads((state / "local" / "personal" / "local.json").read_bytes())
    sha256 = facts["manifest"]
    return Manifest.from_bytes((state / "blobs" / sha256[:2] / sha256).read_bytes()), sha256


def test_its_version_and_its_identity_are_known(state: Path) -> None:
    note_version(state)
    identity = read_identity(state)
    assert (identity.name, identity.address) == (EXPECTED["device"], EXPECTED["address"])
    assert identity.rejection is None or "expired" in identity.rejection
    key: Any = load_pem_private_key(identity.key, None)
    assert signing_request(key, identity.name)  # by which the device renews its certificate


def test_it_trusts_the_same_engineer_and_no_older_bundle(state: Path) -> None:
    held = load(state)
    assert held
    assert held.trust == read_trust(FIRST_RELEASE / "trust.json").verify()
    assert sorted(held.accepted) == ["bundle", "personal"]
    assert all(version > 1_700_000_000 for version in held.accepted.values())


def test_its_personal_tensors_are_what_they_were(state: Path) -> None:
    manifest, sha256 = manifest_of(state)
    unfinished = RunState(state / "runs", "unfinished", manifest=sha256, seed=0)
    newest = unfinished.newest(PERSONAL)
    assert newest
    assert newest.key == (2, 1)
    found = {
        "local/personal/personal.safetensors": find_local_model(state, "personal", PERSONAL, manifest=sha256, seed=0),
        "releases/digits/1/own.safetensors": ReleaseStore(state).open("digits", 1).own,
        "runs/unfinished/2-1/personal.safetensors": newest.file(PERSONAL),
        "runs/unfinished/1-1/personal.safetensors": unfinished.device_state(1, 1, [PERSONAL])[PERSONAL],
    }
    assert {name: ref_of_file(file).sha256 for name, file in found.items() if file} == EXPECTED["personal"]
    values = open_model(newest.file(PERSONAL), manifest.personal)
    assert values.shape == (8 * 10 + 10,)
    assert abs(values).max() > 0.1
    assert find_local_model(state, "plain", MODEL, manifest=sha256, seed=0) is None, "another bundle's"
    assert newest_samples(state / "runs") == 160


def test_it_predicts_as_it_did(state: Path) -> None:
    """Show that its own tensors are in the model, by which no other device predicts like it."""
    samples, before = str(FIRST_RELEASE / "samples.npz"), contents(state)
    found = json.loads(run("moonfed-client", "predict", samples, "--state", str(state), "--threads", "1", "--json"))
    assert _predicted(found) == _predicted(EXPECTED["predictions"])
    assert _confidences(found) == pytest.approx(_confidences(EXPECTED["predictions"]), abs=1e-3)
    assert contents(state) == before


def test_without_its_own_tensors_it_would_predict_otherwise(state: Path) -> None:
    (state / "releases" / "digits" / "1" / OWN_FILE).unlink()
    samples = str(FIRST_RELEASE / "samples.npz")
    found = json.loads(run("moonfed-client", "predict", samples, "--state", str(state), "--threads", "1", "--json"))
    assert _confidences(found) != pytest.approx(_confidences(EXPECTED["predictions"]), abs=1e-3)


def test_it_starts_and_neither_repairs_nor_deletes_anything(state: Path, tmp_path: Path) -> None:
    before = contents(state)
    _run_once(state, tmp_path / "log")
    assert contents(state) == before


def test_it_notes_the_version_if_the_note_was_lost(state: Path, tmp_path: Path) -> None:
    before = contents(state)
    (state / "format").unlink()
    _run_once(state, tmp_path / "log")
    assert contents(state) == before


def test_a_release_of_a_later_format_stops_an_older_device_and_stays(state: Path, tmp_path: Path) -> None:
    """Installed by a later release, on a device that then went back to this one."""
    record = state / "releases" / "digits" / "1"
    manifest = (record / "release.json").read_bytes().replace(b"moonfed-release/2", b"moonfed-release/3")
    (record / "release.json").write_bytes(manifest)
    facts = json.loads((record / "installed.json").read_bytes())
    facts["manifest"] = {"sha256": ref_of_bytes(manifest).sha256, "size": len(manifest)}
    (record / "installed.json").write_text(json.dumps(facts))
    before = contents(state)
    with _started(state, tmp_path / "log") as device:
        assert device.wait(PATIENCE) == 6, (tmp_path / "log").read_text()
    assert contents(state) == before


def _run_once(state: Path, log: Path) -> None:
    """Run the device until it has looked for its coordinator."""
    with _started(state, log) as device:
        deadline = time.monotonic() + PATIENCE
        while NOWHERE not in log.read_text():
            assert device.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        device.send_signal(signal.SIGTERM)
        assert device.wait(PATIENCE) == 0


@contextmanager
def _started(state: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the device, whose coordinator is not there."""
    command = ("run", "--insecure", "--coordinator", NOWHERE, "--name", "cam-1", "--state", str(state),
               "--sandbox", available_level())  # fmt: skip
    program = [sys.executable, "-c", "from moonfed.edge_client.cli import main; main()", *command]
    with log.open("w") as errors, subprocess.Popen(program, stderr=errors) as device:
        try:
            yield device
        finally:
            device.kill()


def _predicted(predictions: dict[str, Any]) -> tuple[str, int, list[str]]:
    return predictions["model"], predictions["version"], [row["class"] for row in predictions["predictions"]]


def _confidences(predictions: dict[str, Any]) -> list[float]:
    """Return each sample's confidences, in the order of the classes."""
    return [
        one["confidence"]
        for row in predictions["predictions"]
        for one in sorted(row["classes"], key=lambda one: int(one["index"]))
    ]
