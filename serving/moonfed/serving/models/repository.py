"""Scanning a model repository: models, versions, and fingerprints that change with their files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from moonfed.errors import InvalidInput, NotFound
from moonfed.files import read_regular

MAX_FILE_BYTES = 1 << 34
WARM_UP_DIRECTORY = "warmup"  # in a model's directory; holds the files that its config names
Fingerprint = frozenset[tuple[str, int, int, int]]  # path, modification time in ns, bytes, inode


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedModel:
    """A model's directory at the time of the scan."""

    path: Path
    config: Fingerprint  # of everything outside version directories: config.pbtxt, labels, warm-up data
    versions: dict[int, Fingerprint]
    ignored: tuple[str, ...] = ()  # directories whose names are no versions

    def fingerprint(self, version: int) -> Fingerprint:
        """Return the fingerprint of all files that a version is loaded from."""
        return self.config | self.versions[version]


def model_names(repository: Path) -> list[str]:
    """List the models of a repository; hidden directories are temporary files of a writer."""
    return sorted(each.name for each in repository.iterdir() if each.is_dir() and not each.name.startswith("."))


def scan_model(repository: Path, name: str) -> ScannedModel:
    """Scan a model's directory; raise NotFound if there is none, InvalidInput for a link out of the repository."""
    path = repository / name
    if name in ("", ".", "..") or "/" in name or not path.is_dir():
        raise NotFound(f"model '{name}' is not in the repository")
    within(repository, path)
    versions = {int(each.name): each for each in path.iterdir() if _is_version(each)}
    others = [each for each in path.iterdir() if _concerns_all_versions(each)]
    for each in (*versions.values(), *others):
        within(repository, each)
    return ScannedModel(
        path=path,
        config=_fingerprint(path, others),
        versions={version: _fingerprint(path, [versions[version]]) for version in sorted(versions)},
        ignored=tuple(sorted(each.name for each in path.iterdir() if _is_ignored(each))),
    )


def select_versions(present: Iterable[int], policy: Any) -> tuple[list[int], list[int]]:
    """Return the versions to serve under a ModelVersionPolicy, ascending, and those it names that are missing."""
    known = sorted(present)
    if policy.HasField("specific"):
        wanted = sorted(set(policy.specific.versions))
        return [each for each in wanted if each in known], [each for each in wanted if each not in known]
    if policy.HasField("all"):
        return known, []
    return known[-(policy.latest.num_versions or 1) :], []


def _is_version(path: Path) -> bool:
    """Return whether it is a version: as in Triton, a number without leading zeros."""
    return path.is_dir() and path.name.isascii() and path.name.isdigit() and str(int(path.name)) == path.name


def _is_ignored(path: Path) -> bool:
    """Return whether it is a directory that may have been meant as a version."""
    is_other = _is_version(path) or path.name == WARM_UP_DIRECTORY or path.name.startswith(".")
    return path.is_dir() and not is_other


def _concerns_all_versions(path: Path) -> bool:
    """Exclude hidden files and directories of other names, where a writer may be preparing the next version."""
    return path.name == WARM_UP_DIRECTORY if path.is_dir() else not path.name.startswith(".")


def _fingerprint(root: Path, paths: Iterable[Path]) -> Fingerprint:
    files: list[Path] = []
    for path in paths:
        files.extend(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else files.append(path)
    return frozenset(entry for file in files for entry in _stat(root, file))


def _stat(root: Path, path: Path) -> list[tuple[str, int, int, int]]:
    try:
        status = path.stat()
    except OSError:  # removed during the scan
        return []
    return [(str(path.relative_to(root)), status.st_mtime_ns, status.st_size, status.st_ino)]


def confined(directory: Path, name: str, field: str) -> Path:
    """Return the path of a file that a config names; InvalidInput if it is not below the directory."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise InvalidInput(f"{field} is {name!r}; it must be a file below the model's directory")
    return directory / name


def read_file(repository: Path, path: Path) -> bytes:
    """Read a file of a model, also through links within the repository; raise OSError or MoonfedError."""
    return read_regular(within(repository, path), MAX_FILE_BYTES)


def within(repository: Path, path: Path) -> Path:
    """Return a path without symbolic links; raise InvalidInput if they lead out of the repository."""
    try:
        real = path.resolve()
    except RuntimeError:  # the links form a loop
        real = Path("/")
    if not real.is_relative_to(repository.resolve()):
        link = path.relative_to(repository)
        raise InvalidInput(f"{link} is a symbolic link out of the repository; it must lead to a file within it")
    return real
