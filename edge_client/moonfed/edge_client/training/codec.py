"""Decoding of the received global model, and encoding of the update."""

from __future__ import annotations

from pathlib import Path

from moonfed.blobs.encoded_models import decode_model, encode_model
from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_results import INITIAL_MODEL, result_file
from moonfed.edge_client.state.round_store import MODEL_ERROR
from moonfed.encodings import ENCODED_MODEL, PLAIN


def decoded_model(job: Job, manifest: Manifest, output: Path) -> Path:
    """Return the float32 file of the received global model; raise SchemaMismatch if it does not fit."""
    received, encoding = Path(job.files[MODEL]), job.encodings.down
    if encoding == PLAIN:
        return received
    output.mkdir(parents=True, exist_ok=True)
    decode_model(received, output / INITIAL_MODEL, manifest.tensors, encoding)
    return output / INITIAL_MODEL


def encode_update(initial_model: Path, job: Job, manifest: Manifest, output: Path) -> None:
    """Encode the trained model in `output`: write its encoding, and the encoding error if that is lossy.

    Error feedback: the encoding error of the last counted update is added to the change before it is encoded. The error
    of an update that did not count is discarded with that update.
    """
    encodings, error = job.encodings, job.kept.get(MODEL_ERROR)
    encode_model(
        result_file(output, MODEL),
        result_file(output, ENCODED_MODEL),
        manifest.tensors,
        encodings.up,
        initial_model=initial_model if encodings.changes else None,
        error=Path(error) if error and encodings.up.lossy else None,
        new_error=result_file(output, MODEL_ERROR) if encodings.up.lossy else None,
    )
