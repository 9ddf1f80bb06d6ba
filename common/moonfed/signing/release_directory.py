"""A released version, REPOSITORY/NAME/VERSION, whose signature also covers the model's configuration and labels.

The directory of a signed version holds copies of both, so that one signature covers everything that a server loads, and
any tool for such signatures can verify it. A version is used only if the originals equal the copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from google.protobuf.message import Message

from moonfed.errors import InvalidInput, ResourceExhausted, UntrustedRelease
from moonfed.files import read_regular
from moonfed.signing.release_signature import MAX_BYTES, SIGNATURE_FILE, ReleaseKey, verify_release

MAX_FILE_BYTES = 1 << 34
CHANGED_BY_ROLL_BACKS = "version_policy"  # the only field of a configuration that signatures do not cover


def subject_of(model: str, version: int) -> str:
    """Return the subject of a version's signature."""
    return f"{model}/{version}"


def read_version(directory: Path) -> dict[str, bytes]:
    """Read all files of a version but its signature, each once; raise UntrustedRelease for a link or a device."""
    files: dict[str, bytes] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            raise UntrustedRelease(f"{path} is a symbolic link; a signed version must contain the files themselves")
        if not path.is_dir() and name != SIGNATURE_FILE:
            files[name] = _read(path, MAX_FILE_BYTES)
    return files


def read_signature(directory: Path) -> bytes | None:
    """Read a version's signature, None if there is none."""
    path = directory / SIGNATURE_FILE
    return _read(path, MAX_BYTES) if path.exists() else None


def verified_version(model: Path, version: int, keys: Sequence[ReleaseKey]) -> Mapping[str, bytes]:
    """Return the verified files of a version that one of the keys signed; raise UntrustedRelease."""
    directory = model / str(version)
    files = read_version(directory)
    verify_release(files, subject_of(model.name, version), read_signature(directory), keys)
    return files


def require_same_file(model: Path, version: int, name: str, files: Mapping[str, bytes]) -> bytes:
    """Return a file next to a model's versions; UntrustedRelease unless a version was signed with the same content."""
    if name not in files:
        raise UntrustedRelease(
            f"version {version} of model {model.name!r} was signed without {name}; sign it again",
            field="version",
            value=version,
        )
    if not (model / name).is_file() or _read(model / name, MAX_FILE_BYTES) != files[name]:
        raise UntrustedRelease(
            f"{name} of model {model.name!r} differs from what was signed with version {version}",
            field="file",
            value=name,
        )
    return files[name]


def require_same_config(written: Message, signed: Message, model: str, version: int) -> None:
    """Raise UntrustedRelease, naming the fields, unless a configuration equals the one signed with a version."""
    fields = [name for name in _differing(written, signed) if name != CHANGED_BY_ROLL_BACKS]
    if fields:
        raise UntrustedRelease(
            f"config.pbtxt of model {model!r} differs from what was signed with version {version}: {', '.join(fields)}"
        )


def _differing(one: Message, other: Message) -> Iterable[str]:
    first, second = ({field.name: value for field, value in message.ListFields()} for message in (one, other))
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def _read(path: Path, most: int) -> bytes:
    try:
        return read_regular(path, most)
    except (OSError, InvalidInput, ResourceExhausted) as error:
        raise UntrustedRelease(f"{path} cannot be verified: {error}") from error
