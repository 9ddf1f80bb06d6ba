"""Decoding of the received global model, and encoding of the update."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from moonfed.edge_client.state.round_store import MODEL_ERROR, RunState, Write
from moonfed.edge_client.worker.messages import Job
from moonfed.encoded_models import decode_model, encode_model
from moonfed.encodings import ENCODED_MODEL, PLAIN
from moonfed.manifest import MODEL, Manifest


def decoded_model(job: Job, manifest: Manifest, scratch: Path) -> Path:
    """Return the float32 file of the received global model; raise SchemaMismatch if it does not fit."""
    received, encoding = Path(job.files[MODEL]), job.encodings.down
    if encoding == PLAIN:
        return received
    decode_model(received, scratch / "initial_model", manifest.tensors, encoding)
    return scratch / "initial_model"


def encoded_update(
    write_model: Write, initial_model: Path, state: RunState, job: Job, manifest: Manifest, scratch: Path
) -> Mapping[str, Write]:
    """Encode the model that `write_model` writes; return writers of the model, its encoding and its error, by role.

    Error feedback: the encoding error of the last counted update is added to the change before it is encoded. The error
    of an update that did not count is discarded with that update.
    """
    encodings, files = job.encodings, {role: scratch / role for role in (MODEL, ENCODED_MODEL)}
    if encodings.up.lossy:
        files[MODEL_ERROR] = scratch / MODEL_ERROR
    write_model(files[MODEL])
    encode_model(
        files[MODEL],
        files[ENCODED_MODEL],
        manifest.tensors,
        encodings.up,
        initial_model=initial_model if encodings.changes else None,
        error=_error(state, job) if encodings.up.lossy else None,
        new_error=files.get(MODEL_ERROR),
    )
    return {role: _moves(file) for role, file in files.items()}


def _error(state: RunState, job: Job) -> Path | None:
    return state.device_state(*job.counted_key, [MODEL_ERROR]).get(MODEL_ERROR)


def _moves(file: Path) -> Write:
    return lambda place: os.replace(file, place)
