"""Creation of a run: checks of its bundle and settings, and its record."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from uuid import uuid4

from moonfed.blobs.store import BlobRef, ref_of_bytes, ref_of_file
from moonfed.bundle.manifest import GRAPH_FILE, WEIGHTS_FILE, Manifest, plan_files
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.compatibility import (
    require_consistent,
    require_robust_aggregation,
    with_default_bounds,
)
from moonfed.coordinator.aggregation.private_reduction import require_private_aggregation
from moonfed.coordinator.deployments.selection import require_any
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.privacy.budget import with_noise
from moonfed.coordinator.records import RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.sizes import fewest_updates
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.updates.codec import encode_global_model
from moonfed.coordinator.updates.validation import check_model
from moonfed.encodings import require_usable
from moonfed.errors import InvalidInput, NotFound, UntrustedBundle
from moonfed.files import sync_file
from moonfed.plan.inspection.graph import require_self_contained
from moonfed.plan.selection import lacks_graphs
from moonfed.server_rules import SERVER_RULES
from moonfed.signing.bundle_signature import MAX_BYTES, require_name, verify
from moonfed.signing.statement import Statement
from moonfed.transport.identity import require_name as require_run_name

UNSIGNED = b""  # in place of a signature; `verify` rejects it


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A request to start a run of stored blobs, named by their sha256."""

    manifest: str
    signature: str  # empty if the bundle is not signed, which is rejected
    settings: RunSettings  # whose bounds may be the bundle's
    name: str = ""  # empty: derived from the bundle's
    model: str = ""  # the initial weights; empty: the bundle's
    allow_empty: bool = False  # no known device needs to have the settings' labels
    draw: Draw | None = None  # of a simulation; None: of a new random secret


def add_run(storage: Storage, new: NewRun) -> RunRecord:
    """Record a run of a stored bundle, from its initial weights unless another stored model is named. Blocking.

    Raises NotFound for a blob that was not uploaded, UntrustedBundle for a bundle that is not signed, InvalidInput or
    SchemaMismatch for a blob that does not fit, InvalidInput for labels that no known device has, AlreadyExists if the
    name is taken.
    """
    owner = object()
    storage.pins.add(owner, [new.manifest, new.signature, new.model])
    try:
        ref = storage.blobs.find(new.manifest)
        signature, statement = _signature(storage, new)
        manifest = Manifest.from_bytes(storage.blobs.read(ref))
        require_name(statement, manifest.name)
        storage.pins.add(owner, [blob.sha256 for blob in manifest.files.values()])
        record = _new_record(storage, new, ref, signature, manifest)
        storage.store.add_run(record, manifest.files, _encoded(storage, owner, record, manifest), new.draw)
    finally:
        storage.pins.drop(owner)
    return record


def _signature(storage: Storage, new: NewRun) -> tuple[BlobRef, Statement]:
    """Check that the signature agrees with its own trust file; whom to trust is up to the devices."""
    ref = storage.blobs.find(new.signature) if new.signature else ref_of_bytes(UNSIGNED)
    if ref.size > MAX_BYTES:
        raise UntrustedBundle(f"the bundle's signature has {ref.size} bytes; it must be at most {MAX_BYTES}")
    return ref, verify(storage.blobs.read(ref) if new.signature else UNSIGNED, new.manifest, now=time.time()).statement


def _encoded(storage: Storage, owner: object, record: RunRecord, manifest: Manifest) -> dict[str, BlobRef]:
    """Encode the initial model for devices, if the run encodes models: a durable blob, by role."""
    model = storage.blobs.verified_path(record.initial)
    target = storage.blobs.incoming(record.initial).with_name(uuid4().hex)
    refs = {}
    for role, path in encode_global_model(model, target, manifest, record.settings.encodings.down).items():
        sync_file(path)
        refs[role] = ref_of_file(path)
        storage.pins.add(owner, [refs[role].sha256])
        storage.blobs.put_file(path, refs[role])
    return refs


def _new_record(storage: Storage, new: NewRun, ref: BlobRef, signature: BlobRef, manifest: Manifest) -> RunRecord:
    blobs = storage.blobs
    settings = with_noise(with_default_bounds(new.settings, manifest))
    for file, blob in manifest.files.items():
        if not blobs.has(blob):
            raise NotFound(f"the bundle's {file}, blob {blob.sha256[:12]}, was not uploaded")
    require_self_contained(blobs.read(manifest.files[GRAPH_FILE]), f"the bundle's {GRAPH_FILE}")
    initial = blobs.find(new.model) if new.model else manifest.files[WEIGHTS_FILE]
    check_model(blobs.verified_path(initial), manifest.tensors)
    require_runnable(manifest, settings)
    if settings.labels and not new.allow_empty:
        having = storage.store.devices.having(settings.labels, trusted=settings.trusted_labels)
        require_any(having, settings.labels, trusted=settings.trusted_labels)
    return RunRecord(
        run=require_run_name("name", new.name) if new.name else _free_name(storage.store, manifest.name),
        created=time.time(),
        status="running",
        settings=settings,
        manifest=ref,
        signature=signature,
        method=manifest.method,
        metric=manifest.metric,
        initial=initial,
    )


def _free_name(store: Store, bundle: str) -> str:
    """Derive a run's name from the bundle's, numbered if it is taken."""
    base = re.sub(r"[^a-z0-9._-]+", "-", bundle.lower()).strip("._-")[:48] or "run"
    taken = {record.run for record in store.runs()}
    numbered = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return base if base not in taken else next(name for name in numbered if name not in taken)


def require_runnable(manifest: Manifest, settings: RunSettings) -> None:
    """Raise InvalidInput, saying what to change, for a bundle that cannot run with these settings.

    A device's size must not count twice: FedProx (Li et al. 2020) selects or weighs by it, not both.
    """
    if manifest.method == "solo":
        raise InvalidInput("method is 'solo', which exchanges nothing; a run on a coordinator needs another method")
    if settings.sampling == "samples" and SERVER_RULES.build(manifest.server_rule).weighting == "samples":
        raise InvalidInput(
            "sampling is 'samples' and so is the bundle's weighting, which would count a device's size twice; "
            "one must be 'uniform': start with --sampling uniform, or export with --server-set weighting=uniform",
            field="sampling",
        )
    if settings.required_plan and settings.required_plan not in plan_files(manifest):
        raise lacks_graphs(manifest)
    require_consistent(manifest)
    if settings.private:
        require_private_aggregation(manifest, SERVER_RULES.build(manifest.server_rule))
    round_protocol(settings).check_manifest(manifest)
    require_usable(settings.downlink_encoding, settings.uplink_encoding)
    require_robust_aggregation(manifest, settings, fewest_updates(settings))
