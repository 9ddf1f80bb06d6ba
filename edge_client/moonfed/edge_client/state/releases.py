"""Releases that this device has installed: a model repository for servers, and the rest of each version.

    STATE/repository/NAME/config.pbtxt       in Triton's layout; names the version that the device predicts with
    STATE/repository/NAME/7/model.onnx, …    that version and the previous one, exactly the files of its variant
    STATE/releases/NAME/7/                   its manifest, its variant, and the plan's files if there is no ONNX Runtime
    STATE/releases/NAME/state.json           the previous version, and the deployments of both

Every version is complete before config.pbtxt names it, and replacing that file is the only step that switches. So a
kill leaves the old version or the new one. This module is used by the light parent process too, so it imports neither
torch nor numpy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from moonfed.blobs.store import ref_of_file
from moonfed.edge_client.state.release_files import (
    NewRelease,
    StoredRelease,
    config_text,
    configured_version,
    is_whole,
    open_release,
    read_facts,
    write_record,
)
from moonfed.edge_client.state.repository import REPOSITORY
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.files import link_or_copy, make_directories, write_durably
from moonfed.fleet.target_release import MAX_INSTALLED, InstalledRelease
from moonfed.models.release_manifest import NAME, require_release_name
from moonfed.models.repository import CONFIG_FILE, LABELS_FILE, RepositoryModel

RECORDS, STATE_FILE = "releases", "state.json"


@dataclass(frozen=True, slots=True)
class _State:
    previous: int = 0
    reported: int = 0  # the latest deployment whose target was reported on
    deployments: Mapping[str, int] = field(default_factory=dict)  # by version


class ReleaseStore:
    """The releases in one state directory. Only the device's agent changes them."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.repository, self._records = state / REPOSITORY, state / RECORDS

    def names(self) -> list[str]:
        """List the installed models."""
        if not self.repository.is_dir():
            return []
        return sorted(path.name for path in self.repository.iterdir() if NAME.fullmatch(path.name) and path.is_dir())

    def config_file(self, name: str) -> Path:
        """Return the file that is replaced whenever the device is to predict with another version."""
        return self._model(name).path / CONFIG_FILE

    def current(self, name: str) -> int:
        """Return the version that the device predicts with; 0: none. Raise Corrupt if config.pbtxt is damaged."""
        try:
            return self._configured(name)
        except Corrupt as error:
            raise Corrupt(f"{error}; start `moonfed-client run`, which repairs it") from error

    def previous(self, name: str) -> int:
        """Return the version that the device goes back to; 0: none."""
        previous = self._read_state(name).previous
        return previous if previous in self._model(name).versions() and previous != self._current(name) else 0

    def installed(self, name: str) -> InstalledRelease:
        """Describe a model for the coordinator."""
        state, current = self._read_state(name), self._current(name)
        if not current:
            return InstalledRelease(name=name, deployment=state.reported)
        return InstalledRelease(
            name=name,
            version=current,
            variant=self._variant(name, current),
            previous=self.previous(name),
            deployment=state.reported,
        )

    def inventory(self) -> list[InstalledRelease]:
        """Describe all models for the coordinator."""
        return [self.installed(name) for name in self.names()[:MAX_INSTALLED]]

    def deployment(self, name: str) -> int:
        """Return the deployment by which the current version was installed; 0: unknown."""
        return self._read_state(name).deployments.get(str(self._current(name)), 0)

    def refused(self, name: str) -> bool:
        """Return whether another deployment than that of the current version was reported on last."""
        return self._read_state(name).reported != self.deployment(name)

    def note_reported(self, name: str, deployment: int) -> None:
        """Note that the coordinator knows what became of a deployment's target, unless the name was never installed."""
        if (self._records / name).is_dir():
            self._write_state(name, replace(self._read_state(name), reported=deployment))

    def open(self, name: str, version: int) -> StoredRelease:
        """Return a version whose files are intact; raise NotFound if there is none, Corrupt if it is damaged."""
        return open_release(self._model(name).version_path(version), self._record(name, version))

    def find(self, name: str, version: int) -> StoredRelease | None:
        """Return a version whose files are intact, None if there is none."""
        try:
            return self.open(name, version)
        except (NotFound, Corrupt):
            return None

    def install(self, new: NewRelease) -> None:
        """Install a version durably, and predict with it from now on; of the others, only the previous one is kept."""
        name, version = new.manifest.name, new.manifest.version
        current = self._current(name)
        config = config_text(new.files[CONFIG_FILE], version)
        self._write_record(new)
        with self._model(name).open_for_writing() as model:
            self._write_version(model, new)
            if LABELS_FILE in new.files and not (model.path / LABELS_FILE).exists():
                model.replace(LABELS_FILE, new.files[LABELS_FILE].read_text(encoding="utf-8"))
            self._note_switch(name, current, version, new.deployment)
            model.replace(CONFIG_FILE, config)
        self._prune(name)

    def switch(self, name: str, version: int, deployment: int) -> None:
        """Predict with another installed version from now on; the present one becomes the previous one."""
        model, current = self._model(name), self._current(name)
        config = config_text(model.version_path(version) / CONFIG_FILE, version)
        with model.locked():
            self._note_switch(name, current, version, deployment)
            model.replace(CONFIG_FILE, config)
        self._prune(name)

    def remove(self, name: str) -> None:
        """Remove a model with all versions; servers never find half of it. Nothing is written for an unknown name."""
        path = self._model(name).path
        if not (path.exists() or (self._records / name).exists()):
            return
        if path.exists():
            hidden = path.with_name(f".{name}.removed")
            shutil.rmtree(hidden, ignore_errors=True)
            path.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
        state = self._read_state(name)
        shutil.rmtree(self._records / name, ignore_errors=True)
        self._write_state(name, _State(reported=state.reported))

    def repair(self, name: str) -> str:
        """Go back to an intact version if the current one is damaged, or else remove the model; return the damage.

        Returns an empty string if nothing is damaged.
        """
        try:
            self.open(name, self._configured(name))
            return ""
        except (NotFound, Corrupt, InvalidInput) as error:
            damage = str(error)
        deployment = self._read_state(name).deployments
        intact = [version for version in reversed(self._model(name).versions()) if self.find(name, version)]
        previous = self._read_state(name).previous
        target = previous if previous in intact else next(iter(intact), 0)
        if target:
            self.switch(name, target, deployment.get(str(target), 0))
            self._forget_previous(name)
        else:
            self.remove(name)
        return damage

    def remove_leftovers(self) -> None:
        """Remove what a killed process left."""
        for directory in (self.repository, self._records):
            for leftover in (*directory.glob(".*"), *directory.glob("*/.*")):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)
        for name in self.names():
            self._prune(name)

    def _model(self, name: str) -> RepositoryModel:
        require_release_name("model", name)
        return RepositoryModel(self.repository, name)

    def _record(self, name: str, version: int) -> Path:
        return self._records / name / str(version)

    def _configured(self, name: str) -> int:
        file = self.config_file(name)
        return configured_version(file) if file.parent.exists() else 0

    def _current(self, name: str) -> int:
        """Return the current version, 0 if config.pbtxt is damaged."""
        try:
            return self._configured(name)
        except Corrupt:
            return 0

    def _variant(self, name: str, version: int) -> str:
        try:
            return read_facts(self._record(name, version)).variant
        except Corrupt:
            return "unknown"

    def _write_record(self, new: NewRelease) -> None:
        """Write what a version has besides its directory, unless it is there already."""
        name, version = new.manifest.name, new.manifest.version
        stored = self.find(name, version)
        complete = stored is not None and (not new.plan_files or stored.plan_files() is not None)
        if stored and complete and (stored.ref, stored.variant) == (ref_of_file(new.manifest_file), new.variant):
            return
        make_directories(self._records / name)
        write_record(self._record(name, version), new)

    def _write_version(self, model: RepositoryModel, new: NewRelease) -> None:
        version, expected = new.manifest.version, new.manifest.files(new.variant)
        path = model.version_path(version)
        if path.exists():
            if is_whole(path, expected):
                return
            model.remove_version(version)
        with model.new_version(version) as directory:
            for file, source in new.files.items():
                link_or_copy(source, directory / file)

    def _note_switch(self, name: str, current: int, version: int, deployment: int) -> None:
        state = self._read_state(name)
        previous = current if current not in (0, version) else state.previous
        kept = {number: found for number, found in state.deployments.items() if int(number) in (previous, current)}
        deployments = {**kept, str(version): deployment}
        self._write_state(name, replace(state, previous=previous, deployments=deployments))

    def _forget_previous(self, name: str) -> None:
        self._write_state(name, replace(self._read_state(name), previous=0))
        self._prune(name)

    def _prune(self, name: str) -> None:
        """Remove all versions but the current and the previous one; nothing while config.pbtxt is damaged."""
        model, kept = self._model(name), (self._current(name), self.previous(name))
        if not kept[0]:
            return
        with model.locked():
            for version in model.versions():
                if version not in kept:
                    model.remove_version(version)
        for record in (self._records / name).glob("*"):
            if record.is_dir() and record.name not in map(str, kept):
                shutil.rmtree(record, ignore_errors=True)

    def _read_state(self, name: str) -> _State:
        try:
            read = json.loads((self._records / name / STATE_FILE).read_bytes())
            deployments = {str(version): int(number) for version, number in read["deployments"].items()}
            return _State(int(read["previous"]), int(read["reported"]), deployments)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return _State()  # the coordinator names the target again

    def _write_state(self, name: str, state: _State) -> None:
        make_directories(self._records / name)
        write_durably(self._records / name / STATE_FILE, json.dumps(asdict(state)).encode())
