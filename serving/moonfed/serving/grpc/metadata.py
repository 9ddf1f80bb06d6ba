"""Server and model metadata, statistics and the repository index as gRPC messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import service_pb2

from moonfed.serving.models.inference_request import IndexEntry, ModelMetadata, TensorMetadata
from moonfed.serving.models.statistics import NO_CACHE, Duration, VersionStatistics

Message = Any  # the stubs have no types


def server_metadata(name: str, version: str, extensions: Sequence[str]) -> Message:
    """Return a ServerMetadataResponse."""
    return service_pb2.ServerMetadataResponse(name=name, version=version, extensions=extensions)


def model_metadata(metadata: ModelMetadata) -> Message:
    """Return a ModelMetadataResponse."""
    return service_pb2.ModelMetadataResponse(
        name=metadata.name,
        versions=metadata.versions,
        platform=metadata.platform,
        inputs=[_tensor_metadata(spec) for spec in metadata.inputs],
        outputs=[_tensor_metadata(spec) for spec in metadata.outputs],
    )


def _tensor_metadata(spec: TensorMetadata) -> Message:
    return service_pb2.ModelMetadataResponse.TensorMetadata(name=spec.name, datatype=spec.datatype, shape=spec.shape)


def repository_index(entries: Sequence[IndexEntry]) -> Message:
    """Return a RepositoryIndexResponse."""
    message = service_pb2.RepositoryIndexResponse()
    for entry in entries:
        message.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
    return message


def model_statistics(versions: Sequence[VersionStatistics]) -> Message:
    """Return a ModelStatisticsResponse."""
    return service_pb2.ModelStatisticsResponse(model_stats=[_version_statistics(version) for version in versions])


def _version_statistics(counts: VersionStatistics) -> Message:
    return service_pb2.ModelStatistics(
        name=counts.name,
        version=counts.version,
        last_inference=counts.last_inference_ms,
        inference_count=counts.inference_count,
        execution_count=counts.execution_count,
        inference_stats=service_pb2.InferStatistics(
            success=_duration(counts.success),
            fail=_duration(counts.fail),
            queue=_duration(counts.queue),
            compute_input=_duration(counts.compute_input),
            compute_infer=_duration(counts.compute_infer),
            compute_output=_duration(counts.compute_output),
            cache_hit=_duration(NO_CACHE),
            cache_miss=_duration(NO_CACHE),
        ),
        batch_stats=[
            service_pb2.InferBatchStatistics(
                batch_size=batch.batch_size,
                compute_input=_duration(batch.compute_input),
                compute_infer=_duration(batch.compute_infer),
                compute_output=_duration(batch.compute_output),
            )
            for batch in counts.batches
        ],
    )


def _duration(duration: Duration) -> Message:
    return service_pb2.StatisticDuration(count=duration.count, ns=duration.ns)
