"""Assignments: a run's settings, its global state, and the last attempt that counted the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.trace_contexts import assignment_traceparent
from moonfed.encodings import ENCODED_MODEL
from moonfed.fleet.assignment import Assignment

ADAPTIVE_MARGIN = 2.0  # above what an encoding takes away from a norm: sign bits leave √(2/π) of it


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalState:
    """A run's global state. The server rule's memory is part of it, and never leaves the coordinator."""

    blobs: Mapping[str, BlobRef]  # by role: the model, its encoded form if any, and the method's files
    # By device: the latest attempt with its update, if devices keep state.
    counted: Mapping[str, AttemptId] = field(default_factory=dict)
    clip_norm: float = 0.0  # of a run with privacy: of the round that starts from it

    def successor(
        self, counted: Mapping[str, AttemptId], blobs: Mapping[str, BlobRef], clip_norm: float
    ) -> GlobalState:
        """Return the global state after a commit; `counted`: the attempts of its devices, if they keep state."""
        return GlobalState(blobs=blobs, counted={**self.counted, **counted}, clip_norm=clip_norm)


def load_global_state(store: Store, blob_store: BlobStore, record: RunRecord, manifest: Manifest) -> GlobalState:
    """Load a run's newest global state; raises Corrupt if a file of it is damaged. Blocking."""
    newest = store.latest_round(record.run, "committed")
    blobs = newest.blobs if newest else store.initial_state(record.run)
    for ref in blobs.values():
        blob_store.verified_path(ref)  # devices must not fetch a damaged file
    counted = store.latest_counted(record.run) if devices_keep_state(manifest, record.settings) else {}
    return GlobalState(blobs=blobs, counted=counted, clip_norm=store.privacy.clip_norm(record))


def devices_keep_state(manifest: Manifest, settings: RunSettings) -> bool:
    """Return True if devices keep state between rounds: their method's, personal tensors, or an encoding's error.

    They are then told which round counted them last, and thereby also that what they kept of it is lost.
    """
    return bool(manifest.device_state) or settings.encodings.up.lossy


def assigned_blobs(manifest: Manifest, global_state: GlobalState) -> dict[str, BlobRef]:
    """Return the files of a global state that devices fetch, by role."""
    blobs = {role: global_state.blobs[role] for role in (MODEL, *manifest.downlink) if role in global_state.blobs}
    if ENCODED_MODEL in global_state.blobs:
        blobs[MODEL] = global_state.blobs[ENCODED_MODEL]
    return blobs


def device_clip(settings: RunSettings, clip_norm: float) -> float:
    """Return the norm to which devices clip: the round's, or more if the clip adapts to how many changes exceed it.

    A device that clipped to the round's own would always count as within it, and the clip would shrink forever.
    """
    return clip_norm * ADAPTIVE_MARGIN if "sigma_b" in settings.privacy else clip_norm


def build_assignment(
    id_: AttemptId, device: str, record: RunRecord, manifest: Manifest, global_state: GlobalState
) -> Assignment:
    """Build one device's assignment in one round."""
    return Assignment(
        id=id_,
        manifest=record.manifest,
        signature=record.signature,
        blobs=assigned_blobs(manifest, global_state),
        training=manifest.training_at(id_.round),
        seed=record.settings.seed,
        encodings=record.settings.encodings,
        counted=global_state.counted.get(device),
        required_plan=record.settings.required_plan,
        clip_norm=device_clip(record.settings, global_state.clip_norm),
        traceparent=assignment_traceparent(record, id_, device),
    )
