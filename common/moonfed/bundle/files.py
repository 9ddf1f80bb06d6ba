"""Bundles on disk: a directory, or the same files in a .zip, with every file checked against the manifest.

The signature is a file next to the manifest; it can be verified before anything else of the bundle is read.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.manifest import MANIFEST_BYTES, MANIFEST_FILE, Manifest, plan_files
from moonfed.errors import (
    AlreadyExists,
    Corrupt,
    InvalidInput,
    NotFound,
    ResourceExhausted,
    UntrustedBundle,
    VersionMismatch,
)
from moonfed.files import new_directory, read_regular, write_durably
from moonfed.signing import bundle_signature
from moonfed.signing.bundle_signature import SIGNATURE_FILE, Check, require_name
from moonfed.signing.key_files import Signer
from moonfed.signing.statement import Statement

_Reader = Callable[[str, int], bytes]  # reads a file by its name, or raises ResourceExhausted beyond a size


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose files are all present and verified."""

    manifest: Manifest
    contents: Mapping[str, bytes]  # the manifest's bytes included
    signature: bytes = b""  # the signature file; empty: the bundle is not signed

    @property
    def ref(self) -> BlobRef:
        """The manifest's blob; its sha256 names the bundle."""
        return ref_of_bytes(self.contents[MANIFEST_FILE])

    @property
    def files(self) -> dict[str, bytes]:
        """Every file by its name, the signature included."""
        return {**self.contents, **({SIGNATURE_FILE: self.signature} if self.signature else {})}

    @property
    def plans(self) -> dict[str, bytes]:
        """The files that hold the plan, by name: in TorchScript, and as graphs if it has any."""
        return {name: self.contents[name] for name in plan_files(self.manifest).values()}

    @property
    def signature_sha256(self) -> str:
        """The signature file's sha256; empty if the bundle is not signed."""
        return ref_of_bytes(self.signature).sha256 if self.signature else ""


def read_bundle(path: Path, check: Check | None = None) -> Bundle:
    """Read and check a bundle; `check` verifies its signature before anything else of it is read.

    Raises NotFound if there is none, InvalidInput for an invalid manifest, Corrupt for a damaged file, and what `check`
    raises.
    """
    if path.is_dir():
        return _checked(lambda name, size: read_regular(path / name, size), path, check)
    if path.is_file() and _is_archive(path):
        with _opened(path) as archive:
            return _checked(lambda name, size: _unzipped(archive, name, size), path, check)
    raise NotFound(
        f"{path} is not a bundle: neither a directory with a {MANIFEST_FILE} nor a .zip of one",
        field="bundle",
        value=path,
    )


def sign_bundle(bundle: Bundle, signer: Signer, *, version: int, expires: float) -> Bundle:
    """Return the bundle with a signature; `version` and `expires`: see Statement."""
    statement = Statement(name=bundle.manifest.name, version=version, manifest=bundle.ref.sha256, expires=int(expires))
    return replace(bundle, signature=bundle_signature.sign(statement, signer.keys, signer.chain).to_bytes())


def require_output(path: Path, *, replace: bool) -> None:
    """Raise unless a bundle may be written there: AlreadyExists for another bundle unless `replace`; InvalidInput."""
    if not _may_be_replaced(path):
        raise InvalidInput(
            field="output", value=path, rest=", which exists and is not a bundle; name a new directory or a .zip"
        )
    if not replace and (path.is_file() or (path / MANIFEST_FILE).is_file()):
        raise AlreadyExists(field="output", value=path, rest=", which is a bundle; name another path, or give --force")


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Write a bundle as a directory, or as an archive if the path ends in .zip; replaces a bundle, but nothing else."""
    require_output(path, replace=True)
    if path.suffix == ".zip":
        write_durably(path, _zipped(bundle))
        return
    with new_directory(path) as directory:
        for name, content in bundle.files.items():
            (directory / name).write_bytes(content)


def _may_be_replaced(path: Path) -> bool:
    if path.is_dir():
        return path.suffix != ".zip" and ((path / MANIFEST_FILE).is_file() or not any(path.iterdir()))
    if not path.exists():
        return True
    if path.suffix != ".zip" or not _is_archive(path):
        return False
    try:
        with _opened(path) as archive:
            return MANIFEST_FILE in archive.namelist()
    except Corrupt:
        return False


def _zipped(bundle: Bundle) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(bundle.files.items()):
            # a fixed time stamp: the same bundle is the same bytes
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


def _checked(read: _Reader, path: Path, check: Check | None) -> Bundle:
    contents = {MANIFEST_FILE: _read(read, MANIFEST_FILE, MANIFEST_BYTES, path)}
    signature = _signature(read, path)
    statement = _verified(check, signature, contents[MANIFEST_FILE], path) if check else None
    try:
        manifest = Manifest.from_bytes(contents[MANIFEST_FILE])
    except (InvalidInput, VersionMismatch) as error:  # it names the field, but not the file
        raise type(error)(field="bundle", value=path, rest=f", which cannot be used: {error}") from error
    if statement:
        require_name(statement, manifest.name)
    for name, ref in manifest.files.items():
        contents[name] = _read(read, name, ref.size, path)
        if ref_of_bytes(contents[name]) != ref:
            raise Corrupt(
                f"{name} in {path} is not the file that its manifest names: the bundle is damaged", field=name
            )
    return Bundle(manifest, contents, signature)


def _verified(check: Check, signature: bytes, manifest: bytes, path: Path) -> Statement:
    try:
        return check(signature, ref_of_bytes(manifest).sha256)
    except UntrustedBundle as error:  # it names the problem, but not the file
        raise UntrustedBundle(f"{path}: {error}") from error


def _signature(read: _Reader, path: Path) -> bytes:
    try:
        return _read(read, SIGNATURE_FILE, bundle_signature.MAX_BYTES, path)
    except NotFound:
        return b""


def _read(read: _Reader, name: str, size: int, path: Path) -> bytes:
    try:
        return read(name, size)
    except (FileNotFoundError, KeyError) as error:
        raise NotFound(f"{path} has no {name}: it is not a bundle, or an incomplete one") from error
    except ResourceExhausted as error:
        raise Corrupt(f"{name} in {path} is larger than it may be: the bundle is damaged", field=name) from error
    except Exception as error:  # zipfile raises a dozen kinds for damaged archives
        raise Corrupt(f"{name} in {path} cannot be read: the bundle is damaged", field=name) from error


def _is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, even a damaged one."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # such as one that claims to be on several disks
        return True


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # zipfile raises a dozen kinds for damaged archives
        raise Corrupt(f"{path} is a damaged archive: {error}") from error


def _unzipped(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    """Read a file of an archive; never more than `size` bytes, however large it claims to be."""
    with archive.open(name) as file:
        content = file.read(size + 1)
    if len(content) > size:
        raise ResourceExhausted(f"{name} has more than {size} bytes", field=name)
    return content
