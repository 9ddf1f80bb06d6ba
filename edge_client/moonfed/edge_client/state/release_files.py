"""The files of a release: those to install it from, and those of an installed version.

This module is used by the light parent process too, so it imports neither torch nor numpy.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.bundle.manifest import OWN_FILE
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.files import link_or_copy, new_directory
from moonfed.models.release_manifest import ReleaseManifest
from moonfed.models.repository import CONFIG_FILE, MODEL_FILE

RELEASE_FILE, FACTS_FILE = "release.json", "installed.json"
_POLICY = re.compile(r"^version_policy \{ specific \{ versions: ([1-9][0-9]*) \} \}$", re.MULTILINE)
_ANY_POLICY = re.compile(r"^\s*version_policy\b", re.MULTILINE)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRelease:
    """A verified version, and the files to install it from; they must never change."""

    manifest: ReleaseManifest
    manifest_file: Path
    variant: str
    deployment: int
    files: Mapping[str, Path]  # of the variant, by name
    plan_files: Mapping[str, Path] = field(default_factory=dict)  # the manifest's, or none
    own: Path | None = None  # this device's personal tensors, if it has any


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRelease:
    """One version on this device, whose files were found to be those that were installed."""

    manifest: ReleaseManifest
    variant: str
    ref: BlobRef  # of the manifest
    directory: Path  # the version's
    record: Path
    own: Path | None = None  # this device's personal tensors, as they were when the version was installed

    @property
    def model_file(self) -> Path:
        """The ONNX file."""
        return self.directory / MODEL_FILE

    def plan_files(self) -> dict[str, Path] | None:
        """Return the files with which a plan predicts; None if they were not installed."""
        files = {name: self.record / name for name in self.manifest.plan}
        return files if all(file.is_file() for file in files.values()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about an installed version, as its record states them."""

    manifest: BlobRef
    variant: str
    own: BlobRef | None = None  # of this device's personal tensors


def read_facts(record: Path) -> Facts:
    """Return what a record says; raise Corrupt."""
    try:
        facts = json.loads((record / FACTS_FILE).read_bytes())
        own = facts.get("own")
        return Facts(
            manifest=BlobRef.from_document(facts["manifest"]),
            variant=str(facts["variant"]),
            own=BlobRef.from_document(own) if own else None,
        )
    except (OSError, ValueError, TypeError, KeyError, InvalidInput) as error:
        raise _damaged(record / FACTS_FILE) from error


def open_release(directory: Path, record: Path) -> StoredRelease:
    """Return a version whose files are intact; raise NotFound if there is none, Corrupt if it is damaged."""
    if not directory.is_dir():
        raise NotFound(f"{directory.parent} has no version {directory.name}")
    facts = read_facts(record)
    require_same(record / RELEASE_FILE, facts.manifest)
    manifest = ReleaseManifest.from_bytes((record / RELEASE_FILE).read_bytes())
    for file, ref in manifest.files(facts.variant).items():
        require_same(directory / file, ref)
    for file, ref in manifest.plan.items():
        if (record / file).exists():  # not where ONNX Runtime is installed
            require_same(record / file, ref)
    return StoredRelease(
        manifest=manifest,
        variant=facts.variant,
        ref=facts.manifest,
        directory=directory,
        record=record,
        own=_own(record / OWN_FILE, facts),
    )


def _own(file: Path, facts: Facts) -> Path | None:
    """Return the device's personal tensors; None if there are none, or with a warning if they are damaged."""
    if facts.own is None:
        return None
    try:
        require_same(file, facts.own)
    except (Corrupt, OSError):
        _log.warning("%s is lost or damaged; the model begins with the initial values of its personal tensors", file)
        return None
    return file


def write_record(record: Path, new: NewRelease) -> None:
    """Write what a version has besides its directory."""
    with new_directory(record) as directory:
        own = {OWN_FILE: new.own} if new.own else {}
        for file, source in {RELEASE_FILE: new.manifest_file, **new.plan_files, **own}.items():
            link_or_copy(source, directory / file)
        facts = Facts(
            manifest=ref_of_file(new.manifest_file),
            variant=new.variant,
            own=ref_of_file(directory / OWN_FILE) if new.own else None,
        )
        (directory / FACTS_FILE).write_text(json.dumps(asdict(facts)))


def config_text(file: Path, version: int) -> str:
    """Return a release's configuration, which then serves this version alone."""
    text = file.read_text(encoding="utf-8")
    if _ANY_POLICY.search(text):
        raise InvalidInput(
            f"{CONFIG_FILE} of the release has a version_policy; devices add their own", field="version_policy"
        )
    return f"{text.rstrip()}\nversion_policy {{ specific {{ versions: {version} }} }}\n"


def configured_version(file: Path) -> int:
    """Return the version that a configuration serves; raise Corrupt if it names none."""
    try:
        found = _POLICY.findall(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        found = []
    if len(found) != 1:
        raise Corrupt(f"{file} does not name a version", field="version")
    return int(found[0])


def is_whole(directory: Path, files: Mapping[str, BlobRef]) -> bool:
    """Return whether a directory has exactly these files."""
    if {path.name for path in directory.iterdir()} != set(files):
        return False
    return all(ref_of_file(directory / name) == ref for name, ref in files.items())


def require_same(file: Path, ref: BlobRef) -> None:
    """Raise Corrupt unless a file has this content."""
    try:
        same = ref_of_file(file) == ref
    except OSError:
        same = False
    if not same:
        raise _damaged(file)


def _damaged(file: Path) -> Corrupt:
    return Corrupt(f"{file} differs from what was installed; the disk may be damaged", field="file", value=file.name)
