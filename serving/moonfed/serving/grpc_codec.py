"""The gRPC messages of the Open Inference Protocol and of Triton, to the domain's and back.

The messages are tritonclient's: `service_pb2` (package `inference`), of which one process can hold only one copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from moonfed.errors import InvalidInput
from moonfed.serving.inference_request import (
    Array,
    IndexEntry,
    InferRequest,
    InferResponse,
    ModelMetadata,
    RequestedOutput,
    TensorMetadata,
)
from moonfed.serving.statistics import NO_CACHE, Duration, VersionStatistics
from moonfed.serving.tensor_codec import BYTES, DTYPES, bytes_array, datatype_of, decode, encode, request_prefix

Message = Any  # the stubs have no types
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
_WIDEST = {field: datatype for datatype, field in _CONTENTS.items()} | {
    "int_contents": "INT32",
    "uint_contents": "UINT32",
}
_SHARED_MEMORY = "shared_memory_region"


def infer_request(message: Message) -> InferRequest:
    """A ModelInferRequest; its tensors' bytes are read in place. Raises InvalidInput if they are not what it says."""
    raw: Sequence[bytes] = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise _wrong_raw(message)
    inputs: dict[str, Array] = {}
    for index, tensor in enumerate(message.inputs):
        if tensor.name in inputs:
            raise InvalidInput(f"{request_prefix(message.id)}input '{tensor.name}' already exists in request")
        _refuse_shared_memory(tensor, message.id)
        inputs[tensor.name] = _from_raw(tensor, raw[index], message) if raw else _from_contents(tensor, message)
    return InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        inputs=inputs,
        outputs=tuple([_requested_output(output, message.id) for output in message.outputs]),
        timeout_us=_timeout(message.parameters, message.id),
    )


def _wrong_raw(message: Message) -> InvalidInput:
    given, wanted = len(message.raw_input_contents), len(message.inputs)
    if given < wanted:
        return _without_data(message.inputs[given], message)
    return InvalidInput(
        f"{request_prefix(message.id)}expected {wanted} raw input contents, one for each input of model "
        f"'{message.model_name}', got {given}"
    )


def _without_data(tensor: Message, message: Message) -> InvalidInput:
    return InvalidInput(
        f"unable to find data for input tensor '{tensor.name}' for model '{message.model_name}' in request."
    )


def _from_raw(tensor: Message, raw: bytes, message: Message) -> Array:
    if tensor.HasField("contents"):
        raise InvalidInput(
            "contents field must not be specified when using raw_input_contents "
            f"for '{tensor.name}' for model '{message.model_name}'"
        )
    return decode(
        raw,
        tensor.datatype,
        tuple(tensor.shape),
        name=tensor.name,
        model=message.model_name,
        request_id=message.id,
    )


def _from_contents(tensor: Message, message: Message) -> Array:
    """An input that is given value by value."""
    field = _CONTENTS.get(tensor.datatype)
    for given, _ in tensor.contents.ListFields():
        if given.name != field:
            raise InvalidInput(
                f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{message.model_name}' "
                f"of type '{_WIDEST[given.name]}', expected datatype '{tensor.datatype}'"
            )
    values = getattr(tensor.contents, field) if field else ()
    if field is None or (not values and 0 not in tensor.shape):
        raise _without_data(tensor, message)
    try:
        array = bytes_array(values) if tensor.datatype == BYTES else np.array(values, DTYPES[tensor.datatype])
    except OverflowError as error:
        raise InvalidInput(
            f"{request_prefix(message.id)}the {len(values)} values of input '{tensor.name}' for model "
            f"'{message.model_name}' do not fit {tensor.datatype}: {error}"
        ) from error
    return decode(
        encode(array),
        tensor.datatype,
        tensor.shape,
        name=tensor.name,
        model=message.model_name,
        request_id=message.id,
    )


def _refuse_shared_memory(tensor: Message, request_id: str) -> None:
    if tensor.parameters and _SHARED_MEMORY in tensor.parameters:
        raise InvalidInput(
            f"{request_prefix(request_id)}'{tensor.name}' is in shared memory, which this server does not offer; "
            "send its bytes in raw_input_contents"
        )


def _requested_output(output: Message, request_id: str) -> RequestedOutput:
    if not output.parameters:
        return RequestedOutput(name=output.name)
    _refuse_shared_memory(output, request_id)
    if "classification" not in output.parameters:
        return RequestedOutput(name=output.name)
    count = _whole_number(output.parameters, "classification", request_id)
    if count < 1:
        raise InvalidInput(
            f"{request_prefix(request_id)}invalid value for 'classification' parameter, expected >= 1, got {count}"
        )
    return RequestedOutput(name=output.name, class_count=count)


def _timeout(parameters: Mapping[str, Any], request_id: str) -> int:
    """Microseconds."""
    if not parameters or "timeout" not in parameters:
        return 0
    timeout = _whole_number(parameters, "timeout", request_id)
    if timeout < 0:
        raise InvalidInput(
            f"{request_prefix(request_id)}invalid value for 'timeout' parameter, expected >= 0, got {timeout}"
        )
    return timeout


def _whole_number(parameters: Mapping[str, Any], name: str, request_id: str) -> int:
    kind = parameters[name].WhichOneof("parameter_choice")
    if kind not in ("int64_param", "uint64_param"):
        raise InvalidInput(
            f"{request_prefix(request_id)}invalid value type for '{name}' parameter, expected int64_param, got {kind}"
        )
    value: int = getattr(parameters[name], kind)
    return value


def infer_response(response: InferResponse) -> Message:
    """A ModelInferResponse, its tensors raw."""
    message = service_pb2.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    for name, array in response.outputs.items():
        message.outputs.add(name=name, datatype=datatype_of(array), shape=array.shape)
        message.raw_output_contents.append(encode(array))
    return message


def stream_response(response: InferResponse) -> Message:
    """A ModelStreamInferResponse; it is its request's last one, as clients of decoupled models want to know."""
    message = service_pb2.ModelStreamInferResponse(infer_response=infer_response(response))
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return message


def stream_error(sentence: str, request: Message) -> Message:
    """A ModelStreamInferResponse for a request of a stream that failed; the stream goes on."""
    message = service_pb2.ModelStreamInferResponse(error_message=sentence)
    message.infer_response.id = request.id
    message.infer_response.model_name = request.model_name
    message.infer_response.model_version = request.model_version
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return message


def server_metadata(name: str, version: str, extensions: Sequence[str]) -> Message:
    """A ServerMetadataResponse."""
    return service_pb2.ServerMetadataResponse(name=name, version=version, extensions=extensions)


def model_metadata(metadata: ModelMetadata) -> Message:
    """A ModelMetadataResponse."""
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
    """A RepositoryIndexResponse."""
    message = service_pb2.RepositoryIndexResponse()
    for entry in entries:
        message.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
    return message


def model_statistics(found: Sequence[VersionStatistics]) -> Message:
    """A ModelStatisticsResponse."""
    return service_pb2.ModelStatisticsResponse(model_stats=[_version_statistics(each) for each in found])


def _version_statistics(found: VersionStatistics) -> Message:
    return service_pb2.ModelStatistics(
        name=found.name,
        version=found.version,
        last_inference=found.last_inference_ms,
        inference_count=found.inference_count,
        execution_count=found.execution_count,
        inference_stats=service_pb2.InferStatistics(
            success=_duration(found.success),
            fail=_duration(found.fail),
            queue=_duration(found.queue),
            compute_input=_duration(found.compute_input),
            compute_infer=_duration(found.compute_infer),
            compute_output=_duration(found.compute_output),
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
            for batch in found.batches
        ],
    )


def _duration(found: Duration) -> Message:
    return service_pb2.StatisticDuration(count=found.count, ns=found.ns)
