"""What goes into an assignment: the run's settings, its newest global state, and when the device counted last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moonfed.assignment import Assignment
from moonfed.blobs import BlobRef
from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.store import Store
from moonfed.encodings import ENCODED_MODEL
from moonfed.manifest import MODEL, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalState:
    """Where a run's training stands. The server rule's memory is part of the global state, and stays here."""

    blobs: Mapping[str, BlobRef]  # the global state by role, the model among it, perhaps also as devices get it
    counted: Mapping[str, AttemptId] = field(default_factory=dict)  # by device, if devices keep anything: the latest

    def after(self, counted: Mapping[str, AttemptId], blobs: Mapping[str, BlobRef]) -> GlobalState:
        """Where it stands once an attempt was committed; `counted`: of whose state that decides, if any is kept."""
        return GlobalState(blobs=blobs, counted={**self.counted, **counted})


def load_global_state(store: Store, blob_store: BlobStore, record: RunRecord, manifest: Manifest) -> GlobalState:
    """The newest committed standing of a run; Corrupt if a file of the global state is damaged. Blocking."""
    newest = store.latest_round(record.run, "committed")
    blobs = newest.blobs if newest else store.initial_state(record.run)
    for ref in blobs.values():
        blob_store.verified_path(ref)  # a damaged one must not go out to devices
    counted = store.latest_counted(record.run) if devices_keep_state(manifest, record.settings) else {}
    return GlobalState(blobs=blobs, counted=counted)


def devices_keep_state(manifest: Manifest, settings: RunSettings) -> bool:
    """Whether devices keep anything of a round only if it counts: their method's state, or what an encoding lost."""
    return bool(manifest.device_state) or settings.encodings.up.lossy


def build_assignment(
    id_: AttemptId, device: str, record: RunRecord, manifest: Manifest, standing: GlobalState
) -> Assignment:
    """One device's work in one round."""
    blobs = {role: standing.blobs[role] for role in (MODEL, *manifest.downlink) if role in standing.blobs}
    if ENCODED_MODEL in standing.blobs:
        blobs[MODEL] = standing.blobs[ENCODED_MODEL]
    return Assignment(
        id=id_,
        manifest=record.manifest,
        blobs=blobs,
        training=manifest.training_at(id_.round),
        seed=record.settings.seed,
        encodings=record.settings.encodings,
        counted=standing.counted.get(device),
    )
