"""Signing of a version's files by the OpenSSF model signing specification, with an elliptic-curve key.

The holder of the public key verifies a version with the same package and without moonfed:
    model_signing verify key REPOSITORY/NAME/7 --signature REPOSITORY/NAME/7/model.sig --public_key key.pub
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from moonfed.errors import InvalidInput, NotFound
from moonfed.files import require_file

SIGNATURE_FILE = "model.sig"


def sign_files(files: Mapping[str, bytes], version: int, key: Path) -> bytes:
    """Sign all files of a version's directory, except the signature itself.

    `key`: a PEM private key without a password, on the curve P-256, P-384 or P-521. Raises NotFound if the key or the
    package is missing, InvalidInput for a key that cannot be used.
    """
    require_file("sign", key)
    try:
        from model_signing import hashing, signing
    except ModuleNotFoundError as error:
        raise NotFound("signing needs the package model-signing: pip install 'moonfed[sign]'") from error
    with tempfile.TemporaryDirectory(prefix="moonfed-") as scratch:
        directory = Path(scratch, str(version))  # its name is signed too
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        signature = directory / SIGNATURE_FILE
        config = signing.Config().set_hashing_config(hashing.Config().set_ignored_paths(paths=[SIGNATURE_FILE]))
        try:
            config.use_elliptic_key_signer(private_key=key)
        except (ValueError, TypeError, AttributeError) as error:  # not PEM, another curve or algorithm, a password
            raise InvalidInput(
                f"{key} cannot sign; it must be a private key in PEM without a password, of P-256, P-384 or P-521"
            ) from error
        config.sign(directory, signature)
        return signature.read_bytes()
