"""Signatures of versions, verified with the model signing package itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moonfed.release.signing import ReleaseSigner
from tests.support.verify_command import arguments

pytestmark = pytest.mark.slow

FILES = {"model.onnx": b"weights", "MODEL_CARD.md": b"# card"}


def write_keys(
    directory: Path, key: ec.EllipticCurvePrivateKey | None = None, *, password: bytes | None = None
) -> Path:
    made = key or ec.generate_private_key(ec.SECP256R1())
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    (directory / "key.pem").write_bytes(made.private_bytes(pem, serialization.PrivateFormat.PKCS8, protection))
    public = made.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "key.pub").write_bytes(public)
    return directory / "key.pem"


def write_version(directory: Path, key: Path) -> Path:
    version = directory / "7"
    version.mkdir()
    for name, content in {**FILES, "model.sig": ReleaseSigner(key).sign(FILES, "digits", 7)}.items():
        (version / name).write_bytes(content)
    return version


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: str(curve.name))
def test_a_signed_version_is_verified_with_the_public_key(
    tmp_path: Path, curve: ec.EllipticCurve, verifies: Callable[[Path, Path], bool]
) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    version = write_version(tmp_path, write_keys(tmp_path, ec.generate_private_key(curve)))
    assert verifies(version, tmp_path / "key.pub")
    moved = tmp_path / "elsewhere"
    version.rename(moved)
    assert verifies(moved, tmp_path / "key.pub")


def test_the_documented_command_verifies_a_version(tmp_path: Path) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    version = write_version(tmp_path, write_keys(tmp_path))
    command = [sys.executable, "-m", "model_signing", *arguments(version, tmp_path / "key.pub")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("change", ["model.onnx", "MODEL_CARD.md", "more.txt", "key"])
def test_a_modified_version_is_not_verified(
    tmp_path: Path, change: str, verifies: Callable[[Path, Path], bool]
) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    version = write_version(tmp_path, write_keys(tmp_path))
    if change == "key":
        write_keys(tmp_path)
    else:
        (version / change).write_bytes(b"others")
    assert not verifies(version, tmp_path / "key.pub")
