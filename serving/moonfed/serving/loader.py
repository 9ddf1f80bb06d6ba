"""Which versions are loaded, in which state and why: what happens between the repository's files and the requests.

A version that is replaced or unloaded goes on with what it has begun. What cannot be loaded replaces nothing: as in
Triton, what was served before is served further, and the index says why.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from moonfed.errors import MoonfedError
from moonfed.serving.inference_request import IndexEntry
from moonfed.serving.model import ModelVersion, load_version
from moonfed.serving.model_config import Config, read_config
from moonfed.serving.onnx_session import SessionSettings
from moonfed.serving.repository import Fingerprint, ScannedModel, select_versions

_LOG = logging.getLogger(__name__)
READY, UNAVAILABLE, LOADING, UNLOADING = "READY", "UNAVAILABLE", "LOADING", "UNLOADING"


@dataclass(slots=True)
class _VersionSlot:
    """What is known of a version."""

    reason: str = ""  # what kept its present files from being loaded
    loading: bool = False
    seen: Fingerprint | None = None  # of the files that were last tried
    loaded: ModelVersion | None = None  # stays while its successor is loaded, and if that fails
    retired: ModelVersion | None = None  # unloaded, perhaps with requests still under way

    def state(self) -> str:
        """Triton's name for it."""
        if self.loaded is not None:
            return READY
        if self.loading:
            return LOADING
        return UNLOADING if self.is_leaving() else UNAVAILABLE

    def is_leaving(self) -> bool:
        """Whether it was unloaded and has requests under way."""
        return self.retired is not None and self.retired.busy()

    def retire(self) -> None:
        """Unloads what is loaded."""
        if self.loaded is not None:
            self.retired, self.loaded, self.reason, self.seen = self.loaded, None, "unloaded", None


class Loader:
    """The versions of all models. One thread at a time changes them, any number looks."""

    def __init__(self, settings: SessionSettings) -> None:
        self.ready: dict[
            tuple[str, str], ModelVersion
        ] = {}  # by name and version, "" the newest; replaced, never changed
        self._settings = settings
        self._lock = threading.Lock()  # of the two below; never held while a model is loaded
        self._slots: dict[str, dict[int, _VersionSlot]] = {}
        self._broken: dict[str, str] = {}  # why nothing of a model's present files can be loaded
        self._replaced: list[ModelVersion] = []

    def names(self) -> set[str]:
        """All models that anything is known of."""
        with self._lock:
            return {*self._slots, *self._broken}

    def entries(self) -> list[IndexEntry]:
        """The index: a line for each version, and one without a version for a model that is broken as a whole."""
        with self._lock:
            found = [
                IndexEntry(name=name, version=str(number), state=slot.state(), reason=slot.reason)
                for name, slots in self._slots.items()
                for number, slot in slots.items()
            ]
            found += [
                IndexEntry(name=name, version="", state=UNAVAILABLE, reason=reason)
                for name, reason in self._broken.items()
            ]
        return sorted(found, key=lambda entry: (entry.name, int(entry.version or 0)))

    def refresh(self, name: str, there: ScannedModel, *, retry: bool = False) -> list[str]:
        """Takes over what has changed in a model's directory; with `retry` also what could not be loaded before.

        Returns what keeps it from being served. A version that is not there is no such reason if another one is: as in
        Triton, which then only logs it; here the index says so, too.
        """
        try:
            config = read_config(there.path)
        except MoonfedError as error:
            return [self.report(name, str(error))]
        chosen, missing = select_versions(there.versions, config.version_policy)
        self._tidy(name, {*chosen, *missing})
        loaded = [(number, self._load(name, number, there, config, retry=retry)) for number in chosen]
        reasons = [f"version {number} is at {UNAVAILABLE} state: {reason}" for number, reason in loaded if reason]
        absent = [self._note_absent(name, number) for number in missing]
        if not chosen:
            about = f"at least one version must be available under the version policy of model '{name}'"
            return [*absent, self.report(name, about)]
        with self._lock:
            self._broken.pop(name, None)
        if not reasons and not absent:
            self._retire(name, keep=set(chosen))
        return reasons

    def _note_absent(self, name: str, number: int) -> str:
        reason = f"version {number} is specified for model '{name}', but the version directory is not present"
        slot = self._slot(name, number)
        if slot.reason != reason:
            _LOG.warning("%s", reason)
        slot.reason = reason
        return reason

    def report(self, name: str, reason: str) -> str:
        """Keeps what is wrong with a model as a whole for the index, and returns it; what is loaded stays so."""
        with self._lock:
            if self._broken.get(name) != reason:
                _LOG.warning("model %s cannot be loaded: %s", name, reason)
            self._broken[name] = reason
        return reason

    def unload(self, name: str) -> None:
        """Takes no more requests for a model."""
        self._retire(name, keep=set())

    def unload_all(self) -> None:
        """Takes no more requests."""
        for name in self.names():
            self.unload(name)

    def forget(self, name: str) -> None:
        """Unloads a model whose directory is gone; it stays in the index as long as it has requests under way."""
        self.unload(name)
        self._tidy(name, set())
        with self._lock:
            self._broken.pop(name, None)

    def wait_until_idle(self) -> None:
        """Returns when what was unloaded or replaced has no request under way."""
        with self._lock:
            slots = [slot for each in self._slots.values() for slot in each.values()]
            leaving = [*self._replaced, *(slot.retired for slot in slots if slot.retired is not None)]
        for version in leaving:
            version.wait_until_idle()

    def _load(self, name: str, number: int, there: ScannedModel, config: Config, *, retry: bool) -> str:
        """Loads a version if its files have changed; returns what keeps them from being served, "" for nothing."""
        fingerprint = there.fingerprint(number)
        slot = self._slot(name, number)
        if slot.seen == fingerprint and not (retry and slot.reason):
            return slot.reason
        slot.loading = True
        reason, version = "", None
        try:
            version = load_version(there.path, number, config, self._settings)
            _LOG.info("model %s version %d is loaded", name, number)
        except MoonfedError as error:
            reason = str(error)
            _LOG.warning("model %s version %d cannot be loaded: %s", name, number, reason)
        except Exception as error:  # whatever is wrong with one model, the others are served
            reason = f"{type(error).__name__}: {error}"
            _LOG.exception("model %s version %d cannot be loaded", name, number)
        self._take(slot, version, reason, fingerprint)
        return reason

    def _take(self, slot: _VersionSlot, version: ModelVersion | None, reason: str, fingerprint: Fingerprint) -> None:
        with self._lock:
            slot.loading, slot.reason, slot.seen = False, reason, fingerprint
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
                        _LOG.info("model %s version %d is unloaded", name, number)
                    slot.retire()
        self._publish()

    def _tidy(self, name: str, wanted: set[int]) -> None:
        """Forgets versions that nobody wants and that have ended."""
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
            version.hurry()
