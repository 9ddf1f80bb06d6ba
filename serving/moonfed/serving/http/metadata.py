"""Server and model metadata, statistics and the repository index as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from moonfed.serving.models.inference_request import IndexEntry, ModelMetadata, TensorMetadata
from moonfed.serving.models.statistics import NO_CACHE, Duration, VersionStatistics

Json = dict[str, Any]
Message = Any  # the stubs have no types


def model_metadata(metadata: ModelMetadata) -> Json:
    """Describe a model."""
    return {
        "name": metadata.name,
        "versions": list(metadata.versions),
        "platform": metadata.platform,
        "inputs": [_tensor(spec) for spec in metadata.inputs],
        "outputs": [_tensor(spec) for spec in metadata.outputs],
    }


def _tensor(spec: TensorMetadata) -> Json:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def repository_index(entries: Sequence[IndexEntry]) -> list[Json]:
    """List all models; a model that was never loaded has only a name."""
    return [
        {key: value for key in ("name", "version", "state", "reason") if (value := getattr(entry, key))}
        for entry in entries
    ]


def model_config(message: Message) -> Message:
    """Convert a ModelConfig as Triton does: config.pbtxt's field names, integers as numbers, defaults included."""
    return {
        field.name: _field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: FieldDescriptor, value: Message) -> Message:
    if field.message_type and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        return {str(key): _value(of_value, value[key]) for key in value}
    return [_value(field, each) for each in value] if field.is_repeated else _value(field, value)


def _value(field: FieldDescriptor, value: Message) -> Message:
    if field.message_type:
        return model_config(value)
    if field.enum_type:
        return field.enum_type.values_by_number[value].name
    return value.decode("latin-1") if isinstance(value, bytes) else value


def model_statistics(versions: Sequence[VersionStatistics]) -> Json:
    """Convert the statistics of several versions."""
    return {"model_stats": [_version_statistics(version) for version in versions]}


def _version_statistics(counts: VersionStatistics) -> Json:
    return {
        "name": counts.name,
        "version": counts.version,
        "last_inference": counts.last_inference_ms,
        "inference_count": counts.inference_count,
        "execution_count": counts.execution_count,
        "inference_stats": {
            name: _duration(getattr(counts, name))
            for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
        }
        | {name: _duration(NO_CACHE) for name in ("cache_hit", "cache_miss")},
        "response_stats": {},
        "memory_usage": [],
        "batch_stats": [
            {
                "batch_size": batch.batch_size,
                **{
                    name: _duration(getattr(batch, name))
                    for name in ("compute_input", "compute_infer", "compute_output")
                },
            }
            for batch in counts.batches
        ],
    }


def _duration(duration: Duration) -> Json:
    return {"count": duration.count, "ns": duration.ns}
