"""The client of a coordinator's Control service.

It verifies a run's bundle before it fetches any other file of it; each rejection names the attack.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_FILE, MANIFEST_FILE, Manifest
from moonfed.errors import NotFound, Unavailable, UntrustedBundle
from moonfed.export.coordinator_client import connect
from moonfed.signing.bundle_signature import BundleSignature
from moonfed.signing.key_files import write_trust
from moonfed.signing.trust import TrustChain
from moonfed.transport.client import to_message
from moonfed.transport.operator_connection import Endpoint
from tests.support.control_service import Control
from tests.support.coordinator import make_bundle
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, ROTATED, issued, signature, signed, trust

BUNDLE = make_bundle()
STRANGERS = TrustChain((issued(trust(9), 9),))
TAKEOVER = TrustChain((*CHAIN.envelopes, issued(trust(9, version=2), 9)))


def altered(bundle: Bundle) -> bytes:
    found = BundleSignature.from_bytes(bundle.signature)
    payload = found.envelope.payload.replace(b'"version":1', b'"version":2')
    return BundleSignature(replace(found.envelope, payload=payload), found.chain).to_bytes()


ATTACKS: dict[str, tuple[bytes, str]] = {
    "stranger": (signed(BUNDLE, keys=[9]).signature, "is signed by .*, which is not trusted"),
    "stranger's trust file": (
        signed(BUNDLE, keys=[9], chain=STRANGERS).signature,
        "that is trusted",
    ),
    "rotation by nobody": (signed(BUNDLE, keys=[9], chain=TAKEOVER).signature, "not signed by 1 of its predecessor's"),
    "rotated key": (signed(BUNDLE, chain=ROTATED).signature, "is signed by .*, which is not trusted"),
    "expired": (signed(BUNDLE, expires=1).signature, "signature expired on 1970-01-01 00:00 UTC"),
    "altered signature": (altered(BUNDLE), "something was altered"),
    "other manifest": (signature(b"another manifest").to_bytes(), "is for another manifest"),
    "other name": (signed(BUNDLE, name="other").signature, "is named 'digits', but signed as 'other'"),
    "too large": (b"{" * 65537, "65537 bytes"),
}


def manifest(control: Control, trust_file: Path | None = None) -> Manifest:
    with connect(Endpoint(control.address, None), trust=trust_file) as runs:
        return runs.manifest(runs.run("r"))


def served(directory: Path, bundle: Bundle) -> Control:
    control = Control(directory, bundle)  # type: ignore[abstract]  # it answers only what export asks
    control.serve()
    return control


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_rejected_before_anything_else_is_fetched(attack: str, tmp_path: Path) -> None:
    content, reason = ATTACKS[attack]
    control = served(tmp_path, replace(BUNDLE, signature=content))
    if attack != "other name":  # which only the manifest shows
        control.blobs.path(BUNDLE.ref.sha256).unlink()
    try:
        with pytest.raises(UntrustedBundle, match=reason):
            manifest(control)
    finally:
        control.stop()


def test_a_run_without_a_signature_or_with_another_manifest_is_rejected(tmp_path: Path) -> None:
    control = served(tmp_path, BUNDLE)
    try:
        assert manifest(control) == BUNDLE.manifest
        other = make_bundle("other").contents[MANIFEST_FILE]
        control.run.manifest.CopyFrom(to_message(control.blobs.put_bytes(other)))
        with pytest.raises(UntrustedBundle, match="is for another manifest"):
            manifest(control)
        control.run.ClearField("signature")
        with pytest.raises(UntrustedBundle, match="is not signed"):
            manifest(control)
    finally:
        control.stop()


def test_a_bundle_of_another_engineer_needs_their_trust_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_programs: None
) -> None:
    theirs = signed(BUNDLE, keys=[9], chain=STRANGERS)
    control = served(tmp_path, theirs)
    write_trust(tmp_path / "theirs.json", STRANGERS)
    try:
        assert manifest(control, tmp_path / "theirs.json") == BUNDLE.manifest
        monkeypatch.setenv("MOONFED_KEYS", str(tmp_path / "nobody"))
        with refused(NotFound, "trust file"):
            manifest(control)
        for command in ("evaluate", "onnx", "repository", "follow"):
            done = export(command, control, tmp_path, "--trust", str(tmp_path / "mine.json"))
            assert (done.returncode, "mine.json'; there is no" in done.stderr) == (3, True), done.stderr
    finally:
        control.stop()


def test_the_commands_have_an_exit_code_of_their_own_for_a_stranger(tmp_path: Path, forked_programs: None) -> None:
    control = served(tmp_path, signed(BUNDLE, keys=[9], chain=STRANGERS))
    try:
        for command in ("evaluate", "onnx", "repository", "follow"):
            done = export(command, control, tmp_path)
            assert (done.returncode, "is trusted here" in done.stderr) == (12, True), done.stderr
    finally:
        control.stop()


def with_key_in_graph(bundle: Bundle) -> Bundle:
    """Return the bundle with a graph that computes with a tensor whose data are in the operator's key."""
    proto = onnx.ModelProto.FromString(bundle.contents[GRAPH_FILE])
    stolen = proto.graph.initializer.add(name="stolen", dims=[27], data_type=onnx.TensorProto.UINT8)
    stolen.data_location = onnx.TensorProto.EXTERNAL
    stolen.external_data.add(key="location", value="key.pem")
    proto.graph.node.add(op_type="Cast", input=["stolen"], output=["shown"]).attribute.add(name="to", i=1, type=2)
    graph = proto.SerializeToString()
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, GRAPH_FILE: ref_of_bytes(graph)})
    return Bundle(manifest, {**bundle.contents, GRAPH_FILE: graph, MANIFEST_FILE: manifest.to_bytes()})


@pytest.mark.parametrize("command", ["onnx", "evaluate"])
def test_the_operators_key_does_not_become_part_of_a_model(
    command: str, bundle: Bundle, data_file: Path, tmp_path: Path, forked_programs: None
) -> None:
    """A coordinator sends a graph that it should have rejected when the run started."""
    key = b"-----BEGIN PRIVATE KEY-----"
    (tmp_path / "key.pem").write_bytes(key)
    control = served(tmp_path / "coordinator", with_key_in_graph(bundle))
    try:
        done = export(command, control, tmp_path)
    finally:
        control.stop()
    assert (done.returncode, done.stdout) == (2, "")
    assert "has a tensor 'stolen'" in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file() and key in path.read_bytes()] == [
        tmp_path / "key.pem"
    ]


def export(command: str, control: Control, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    chosen = {
        "evaluate": (),
        "onnx": ("--output", str(directory / "model.onnx")),
        "repository": ("--name", "m", "--output", str(directory / "models")),
        "follow": ("--name", "m", "--repository", str(directory / "models")),
    }[command]
    program = str(Path(sys.executable).with_name("moonfed-export"))
    place = ("--insecure", "--coordinator", control.address, "--data", str(directory / "test.npz"))
    return subprocess.run(
        [program, command, "r", *chosen, *place, *options], capture_output=True, text=True, check=False, cwd=directory
    )


def test_an_unknown_run_and_an_unavailable_coordinator_are_reported(control: Control) -> None:
    with connect(Endpoint(control.address, None)) as runs:
        with refused(NotFound, "run", "other"):
            runs.run("other")
        control.stop()
        with pytest.raises(Unavailable, match="cannot be reached"):
            runs.run("r")
