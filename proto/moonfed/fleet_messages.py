"""Conversion between the Fleet service's messages and the value types that both ends share."""

from __future__ import annotations

from moonfed.assignment import Assignment, AttemptId, RunEnded
from moonfed.blobs import BlobRef
from moonfed.encodings import parse_encodings
from moonfed.training_spec import TrainingSpec
from moonfed.transport import from_message, to_message
from moonfed.v1 import blob_pb2, fleet_pb2


def read_assignment(message: fleet_pb2.Assignment) -> Assignment:
    """Convert and check an assignment from the network; InvalidInput names the field."""
    counted = AttemptId(run=message.run, round=message.counted_round, attempt=message.counted_attempt)
    return Assignment(
        id=AttemptId(run=message.run, round=message.round, attempt=message.attempt),
        manifest=from_message(message.manifest),
        signature=from_message(message.signature) if message.HasField("signature") else None,
        blobs={role: from_message(blob) for role, blob in message.blobs.items()},
        training=_read_training(message.training),
        seed=message.seed,
        counted=counted if message.counted_round else None,
        encodings=parse_encodings(message.downlink_encoding, message.uplink_encoding),
    )


def write_assignment(assignment: Assignment) -> fleet_pb2.Assignment:
    """Convert an assignment for the network."""
    id_, counted = assignment.id, assignment.counted
    return fleet_pb2.Assignment(
        run=id_.run,
        round=id_.round,
        attempt=id_.attempt,
        manifest=to_message(assignment.manifest),
        signature=_blob(assignment.signature),
        blobs={role: to_message(ref) for role, ref in assignment.blobs.items()},
        training=fleet_pb2.TrainingSpec(**assignment.training.to_document()),
        seed=assignment.seed,
        counted_round=counted.round if counted else 0,
        counted_attempt=counted.attempt if counted else 0,
        downlink_encoding=str(assignment.encodings.down),
        uplink_encoding=str(assignment.encodings.up),
    )


def read_run_ended(message: fleet_pb2.RunEnded) -> RunEnded:
    """Convert and check the end of a run; InvalidInput names the field. A model needs its manifest, and vice versa."""
    finished = message.HasField("manifest") and message.HasField("model")
    return RunEnded(
        run=message.run,
        manifest=from_message(message.manifest) if finished else None,
        model=from_message(message.model) if finished else None,
        rounds=message.rounds,
        signature=from_message(message.signature) if finished and message.HasField("signature") else None,
    )


def write_run_ended(ended: RunEnded) -> fleet_pb2.RunEnded:
    """Convert the end of a run for the network."""
    return fleet_pb2.RunEnded(
        run=ended.run,
        manifest=_blob(ended.manifest),
        model=_blob(ended.model),
        rounds=ended.rounds,
        signature=_blob(ended.signature),
    )


def _read_training(message: fleet_pb2.TrainingSpec) -> TrainingSpec:
    return TrainingSpec(
        epochs=message.epochs,
        batch_size=message.batch_size,
        views=message.views,
        hyperparameters=dict(message.hyperparameters),
    )


def _blob(ref: BlobRef | None) -> blob_pb2.Blob | None:
    return to_message(ref) if ref else None
