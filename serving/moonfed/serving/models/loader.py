"""Loading and unloading of model versions, and the state of each.

A version that is replaced or unloaded finishes its requests. A version that fails to load replaces nothing: as in
Triton, the previous one stays in service, and the index shows the reason.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from moonfed.errors import MoonfedError
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models.config import WrittenConfig, read_config
from moonfed.serving.models.inference_request import IndexEntry
from moonfed.serving.models.repository import Fingerprint, ScannedModel, select_versions
from moonfed.serving.models.version import ModelVersion, load_version
from moonfed.serving.models.version_files import VerifiedFiles, VersionFiles
from moonfed.signing.release_signature import ReleaseKey

IGNORED_NAMED = 3  # directories in a reason
_log = logging.getLogger(__name__)
READY = "READY"
UNAVAILABLE = "UNAVAILABLE"
LOADING = "LOADING"
UNLOADING = "UNLOADING"


@dataclass(slots=True)
class _VersionSlot:
    """The state of one version."""

    reason: str = ""  # why its present files could not be loaded
    loading: bool = False
    seen: Fingerprint | None = None  # of the files that were tried last
    loaded: ModelVersion | None = None  # stays while its successor is loading, and if that fails
    retired: ModelVersion | None = None  # unloaded, perhaps with requests in flight

    def state(self) -> str:
        """Return Triton's name of the state."""
        if self.loaded is not None:
            return READY
        if self.loading:
            return LOADING
        return UNLOADING if self.is_leaving() else UNAVAILABLE

    def is_leaving(self) -> bool:
        """Return whether it was unloaded and still has requests in flight."""
        return self.retired is not None and self.retired.busy()

    def retire(self) -> None:
        """Unload the loaded version, if any."""
        if self.loaded is not None:
            self.retired = self.loaded
            self.loaded = None
            self.reason = "unloaded"
            self.seen = None


class Loader:
    """The versions of all models. One thread at a time changes them, any number reads."""

    def __init__(self, settings: SessionSettings, keys: Sequence[ReleaseKey] = ()) -> None:
        """`keys`: if any are given, only versions signed with one of them are loaded."""
        self._keys = keys
        self.ready: dict[
            tuple[str, str], ModelVersion
        ] = {}  # by name and version ("": the newest); replaced, never mutated
        self._settings = settings
        self._lock = threading.Lock()  # guards the attributes below; never held while a model loads
        self._slots: dict[str, dict[int, _VersionSlot]] = {}
        self._failures: dict[str, str] = {}  # by name: why nothing of a model's present files can be loaded
        self._replaced: list[ModelVersion] = []

    def names(self) -> set[str]:
        """Return the names of all known models."""
        with self._lock:
            return {*self._slots, *self._failures}

    def index(self) -> list[IndexEntry]:
        """Return an entry for each version, and one without a version for a model that cannot be loaded at all."""
        with self._lock:
            entries = [
                IndexEntry(name=name, version=str(number), state=slot.state(), reason=slot.reason)
                for name, slots in self._slots.items()
                for number, slot in slots.items()
            ]
            entries += [
                IndexEntry(name=name, version="", state=UNAVAILABLE, reason=reason)
                for name, reason in self._failures.items()
            ]
        return sorted(entries, key=lambda entry: (entry.name, int(entry.version or 0)))

    def refresh(self, name: str, scanned: ScannedModel, *, retry: bool = False) -> list[str]:
        """Load the changed versions in a model's directory; with `retry`, also those that failed before.

        Returns the reasons why it is not served. A missing version is not a reason if another one is present: Triton
        only logs it then; here the index shows it too.
        """
        try:
            config = read_config(scanned.path)
        except MoonfedError as error:
            return [self.record_failure(name, str(error))]
        chosen, missing = select_versions(scanned.versions, config.message.version_policy)
        self._prune(name, {*chosen, *missing})
        loaded = [(number, self._load(name, number, scanned, config, retry=retry)) for number in chosen]
        reasons = [f"version {number} is at {UNAVAILABLE} state: {reason}" for number, reason in loaded if reason]
        absent = [self._record_missing(name, number) for number in missing]
        if not chosen:
            return [*absent, self.record_failure(name, _without_versions(name, scanned.ignored))]
        with self._lock:
            self._failures.pop(name, None)
        if not reasons and not absent:
            self._retire(name, keep=set(chosen))
        return reasons

    def _record_missing(self, name: str, number: int) -> str:
        reason = f"version {number} is specified for model '{name}', but the version directory is not present"
        slot = self._slot(name, number)
        if slot.reason != reason:
            _log.warning("%s", reason)
        slot.reason = reason
        return reason

    def record_failure(self, name: str, reason: str) -> str:
        """Record and return the reason why a model cannot be loaded at all; its loaded versions stay in service."""
        with self._lock:
            if self._failures.get(name) != reason:
                _log.warning("model %s cannot be loaded: %s", name, reason)
            self._failures[name] = reason
        return reason

    def unload(self, name: str) -> None:
        """Accept no more requests for a model."""
        self._retire(name, keep=set())

    def unload_all(self) -> None:
        """Accept no more requests."""
        for name in self.names():
            self.unload(name)

    def remove(self, name: str) -> None:
        """Unload a model whose directory was removed; it stays in the index while it has requests in flight."""
        self.unload(name)
        self._prune(name, set())
        with self._lock:
            self._failures.pop(name, None)

    def wait_until_idle(self) -> None:
        """Wait until unloaded and replaced versions have no request in flight."""
        with self._lock:
            slots = [slot for each in self._slots.values() for slot in each.values()]
            leaving = [*self._replaced, *(slot.retired for slot in slots if slot.retired is not None)]
        for version in leaving:
            version.wait_until_idle()

    def _load(self, name: str, number: int, scanned: ScannedModel, config: WrittenConfig, *, retry: bool) -> str:
        """Load a version if its files have changed; return why they are not served, "" if they are."""
        fingerprint = scanned.fingerprint(number)
        slot = self._slot(name, number)
        if slot.seen == fingerprint and not (retry and slot.reason):
            return slot.reason
        slot.loading = True
        reason, version = "", None
        try:
            version = load_version(self._files(scanned, number, config), config, self._settings)
            _log.info("model %s version %d is loaded", name, number)
        except MoonfedError as error:
            reason = str(error)
            _log.warning("model %s version %d cannot be loaded: %s", name, number, reason)
        except Exception as error:  # one broken model must not affect the others
            reason = f"{type(error).__name__}: {error}"
            _log.exception("model %s version %d cannot be loaded", name, number)
        self._install(slot, version, reason, fingerprint)
        return reason

    def _files(self, scanned: ScannedModel, number: int, config: WrittenConfig) -> VersionFiles:
        if self._keys:
            return VerifiedFiles(scanned.path, number, config.message, self._keys)
        return VersionFiles(scanned.path, number)

    def _install(self, slot: _VersionSlot, version: ModelVersion | None, reason: str, fingerprint: Fingerprint) -> None:
        with self._lock:
            slot.loading = False
            slot.reason = reason
            slot.seen = fingerprint
            if version is not None:
                self._replaced = [each for each in self._replaced if each.busy()]
                if slot.loaded is not None:
                    self._replaced.append(slot.loaded)
                slot.loaded = version
        self._publish()

    def _slot(self, name: str, number: int) -> _VersionSlot:
        with self._lock:
            return self._slots.setdefault(name, {}).setdefault(number, _VersionSlot())

    def _retire(self, name: str, *, keep: set[int]) -> None:
        with self._lock:
            for number, slot in self._slots.get(name, {}).items():
                if number not in keep:
                    if slot.retired is not None and slot.is_leaving():
                        self._replaced.append(slot.retired)
                    if slot.loaded is not None:
                        _log.info("model %s version %d is unloaded", name, number)
                    slot.retire()
        self._publish()

    def _prune(self, name: str, wanted: set[int]) -> None:
        """Drop the slots of deselected versions that have finished."""
        with self._lock:
            slots = self._slots.get(name, {})
            self._slots[name] = {
                number: slot
                for number, slot in slots.items()
                if number in wanted or slot.loaded is not None or slot.is_leaving()
            }
            if not self._slots[name]:
                del self._slots[name]

    def _publish(self) -> None:
        with self._lock:
            before = set(self.ready.values())
            ready: dict[tuple[str, str], ModelVersion] = {}
            for name, slots in self._slots.items():
                for _, version in sorted((number, slot.loaded) for number, slot in slots.items() if slot.loaded):
                    ready[name, version.version] = ready[name, ""] = version
            self.ready = ready
        for version in before - set(ready.values()):
            version.flush()


def _without_versions(name: str, ignored: Sequence[str]) -> str:
    reason = f"at least one version must be available under the version policy of model '{name}'"
    if not ignored:
        return reason
    listed = ", ".join(f"'{each}'" for each in ignored[:IGNORED_NAMED])
    return f"{reason}; a version's directory is named by a whole number without leading zeros, not {listed}"
