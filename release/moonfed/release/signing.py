"""Signing of a version's files, together with the model's configuration and labels.

Anyone with the public key can verify a version with `serve --verify-key`, or, if the key is on one of NIST's elliptic
curves, without moonfed:
    model_signing verify key REPOSITORY/NAME/7 --signature REPOSITORY/NAME/7/model.sig --public_key key.pub
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moonfed.signing.release_directory import subject_of
from moonfed.signing.release_signature import PrivateKey, read_private_key, sign_release


class ReleaseSigner:
    """A private key that signs versions."""

    def __init__(self, path: Path) -> None:
        """Read the key; raise NotFound, or InvalidInput for one that cannot be used."""
        self.key: PrivateKey = read_private_key(path)

    def sign(self, files: Mapping[str, bytes], model: str, version: int) -> bytes:
        """Return the signature of all files of a version's directory but the signature itself."""
        return sign_release(files, subject_of(model, version), self.key)
