"""A signed version's directory: what is read, and what must equal it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf import text_format
from google.protobuf.message import Message
from tritonclient.grpc import model_config_pb2

from moonfed.errors import UntrustedRelease
from moonfed.signing import release_directory
from moonfed.signing.release_directory import (
    read_signature,
    read_version,
    require_same_config,
    require_same_file,
    subject_of,
    verified_version,
)
from moonfed.signing.release_signature import SIGNATURE_FILE, release_key, sign_release
from tests.support.refusals import refused

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = [release_key(KEY)]
FILES = {"model.onnx": b"graph", "config.pbtxt": b"backend", "notes/card.md": b"# card"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with one signed version."""
    model = tmp_path / "digits"
    for name, content in FILES.items():
        path = model / "7" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (model / "7" / SIGNATURE_FILE).write_bytes(sign_release(FILES, subject_of("digits", 7), KEY))
    return model


def test_a_signed_version_is_returned_as_it_was_verified(model: Path) -> None:
    assert verified_version(model, 7, KEYS) == FILES
    assert read_version(model / "7") == FILES


Change = Callable[[Path], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "changed": (lambda path: (path / "model.onnx").write_bytes(b"other"), "model.onnx of digits/7 was changed"),
    "added": (lambda path: (path / "notes" / "more").touch(), "digits/7 has notes/more"),
    "removed": (lambda path: (path / "notes" / "card.md").unlink(), "digits/7 lacks notes/card.md"),
    "unsigned": (lambda path: (path / SIGNATURE_FILE).unlink(), "digits/7 is not signed"),
    "link": (
        lambda path: (path / "link").symlink_to("model.onnx"),
        "link is a symbolic link; a signed version must contain",
    ),
    "linked directory": (
        lambda path: (path / "all").symlink_to(path),
        "all is a symbolic link; a signed version must contain",
    ),
    "pipe": (lambda path: os.mkfifo(path / "pipe"), "pipe cannot be verified: "),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_named(change: str, model: Path) -> None:
    make, message = CHANGES[change]
    make(model / "7")
    with pytest.raises(UntrustedRelease, match=message):
        verified_version(model, 7, KEYS)


def test_a_version_does_not_pass_for_another_model_or_number(model: Path) -> None:
    (model / "7").rename(model / "8")
    with refused(UntrustedRelease, "signed name", ["digits/7"]):
        verified_version(model, 8, KEYS)
    (model / "8").rename(model / "7")
    with refused(UntrustedRelease, "signed name", ["digits/7"]):
        verified_version(model.rename(model.with_name("pets")), 7, KEYS)


def test_files_beyond_a_limit_are_not_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_directory, "MAX_FILE_BYTES", 5)
    with pytest.raises(UntrustedRelease, match=r"config.pbtxt cannot be verified: "):
        read_version(model / "7")
    monkeypatch.setattr(release_directory, "MAX_BYTES", 5)
    with pytest.raises(UntrustedRelease, match="cannot be verified"):
        read_signature(model / "7")


def test_a_version_without_a_signature_has_none(model: Path) -> None:
    (model / "7" / SIGNATURE_FILE).unlink()
    assert read_signature(model / "7") is None


def test_a_file_beside_the_versions_must_be_the_signed_one(model: Path) -> None:
    signed = {"labels.txt": b"cat\ndog"}
    with refused(UntrustedRelease, "version", 7):
        require_same_file(model, 7, "other.txt", signed)
    for content in (None, b"dog\ncat"):
        if content:
            (model / "labels.txt").write_bytes(content)
        with refused(UntrustedRelease, "file", "labels.txt"):
            require_same_file(model, 7, "labels.txt", signed)
    (model / "labels.txt").write_bytes(signed["labels.txt"])
    assert require_same_file(model, 7, "labels.txt", signed) == b"cat\ndog"


def config(text: str) -> Message:
    message: Message = text_format.Parse(text, model_config_pb2.ModelConfig())
    return message


def test_only_the_version_policy_of_a_configuration_may_differ() -> None:
    signed = config("max_batch_size: 8 version_policy { latest { num_versions: 1 } }")
    for policy in ("", "version_policy { specific { versions: 3 } }", "version_policy { all { } }"):
        require_same_config(config(f"max_batch_size: 8 {policy}"), signed, "digits", 7)
    for other, fields in (
        ("max_batch_size: 9", "max_batch_size"),
        ("", "max_batch_size"),
        ("max_batch_size: 8 default_model_filename: '../1/model.onnx'", "default_model_filename"),
        ("backend: 'python'", "backend, max_batch_size"),
    ):
        with pytest.raises(UntrustedRelease) as error:
            require_same_config(config(other), signed, "digits", 7)
        assert (
            str(error.value) == f"config.pbtxt of model 'digits' differs from what was signed with version 7: {fields}"
        )
