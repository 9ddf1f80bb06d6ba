"""Inference requests and responses as gRPC messages of the Open Inference Protocol and Triton.

The messages are tritonclient's `service_pb2` (package `inference`), since a process can hold only one copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from moonfed.errors import InvalidInput
from moonfed.serving.models.inference_request import (
    Array,
    InferRequest,
    InferResponse,
    RequestedOutput,
)
from moonfed.serving.models.tensor_codec import (
    BYTES,
    DTYPES,
    bytes_array,
    datatype_of,
    decode,
    encode,
    request_prefix,
    require_few_outputs,
)

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


def decode_request(message: Message) -> InferRequest:
    """Decode a ModelInferRequest, reading tensor bytes in place; raise InvalidInput if they contradict the message."""
    raw: Sequence[bytes] = message.raw_input_contents
    require_few_outputs(len(message.outputs), message.id)
    if raw and len(raw) != len(message.inputs):
        raise _wrong_raw_count(message)
    inputs: dict[str, Array] = {}
    for index, tensor in enumerate(message.inputs):
        if tensor.name in inputs:
            raise InvalidInput(f"{request_prefix(message.id)}input '{tensor.name}' already exists in request")
        _reject_shared_memory(tensor, message.id)
        inputs[tensor.name] = _from_raw(tensor, raw[index], message) if raw else _from_contents(tensor, message)
    return InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        inputs=inputs,
        outputs=tuple([_requested_output(output, message.id) for output in message.outputs]),
        timeout_us=_timeout_us(message.parameters, message.id),
    )


def _wrong_raw_count(message: Message) -> InvalidInput:
    given, expected = len(message.raw_input_contents), len(message.inputs)
    if given < expected:
        return _missing_data(message.inputs[given], message)
    return InvalidInput(
        f"{request_prefix(message.id)}expected {expected} raw input contents, one for each input of model "
        f"'{message.model_name}', got {given}"
    )


def _missing_data(tensor: Message, message: Message) -> InvalidInput:
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
    """Decode an input whose values are listed one by one."""
    field = _CONTENTS.get(tensor.datatype)
    for given, _ in tensor.contents.ListFields():
        if given.name != field:
            raise InvalidInput(
                f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{message.model_name}' "
                f"of type '{_WIDEST[given.name]}', expected datatype '{tensor.datatype}'"
            )
    values = getattr(tensor.contents, field) if field else ()
    if field is None or (not values and 0 not in tensor.shape):
        raise _missing_data(tensor, message)
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


def _reject_shared_memory(tensor: Message, request_id: str) -> None:
    if tensor.parameters and _SHARED_MEMORY in tensor.parameters:
        raise InvalidInput(
            f"{request_prefix(request_id)}'{tensor.name}' uses shared memory, which this server does not offer; "
            "transfer its bytes in the message"
        )


def _requested_output(output: Message, request_id: str) -> RequestedOutput:
    if not output.parameters:
        return RequestedOutput(name=output.name)
    _reject_shared_memory(output, request_id)
    if "classification" not in output.parameters:
        return RequestedOutput(name=output.name)
    count = _whole_number(output.parameters, "classification", request_id)
    if count < 1:
        raise InvalidInput(
            f"{request_prefix(request_id)}invalid value for 'classification' parameter, expected >= 1, got {count}"
        )
    return RequestedOutput(name=output.name, class_count=count)


def _timeout_us(parameters: Mapping[str, Any], request_id: str) -> int:
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


def encode_response(response: InferResponse) -> Message:
    """Encode a ModelInferResponse with raw tensors."""
    message = service_pb2.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    for name, array in response.outputs.items():
        message.outputs.add(name=name, datatype=datatype_of(array), shape=array.shape)
        message.raw_output_contents.append(encode(array))
    return message


def encode_stream_response(response: InferResponse) -> Message:
    """Encode a ModelStreamInferResponse, marked as its request's last, which clients of decoupled models expect."""
    message = service_pb2.ModelStreamInferResponse(infer_response=encode_response(response))
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return message


def encode_stream_error(error_message: str, request: Message) -> Message:
    """Encode a ModelStreamInferResponse for a request that failed; its stream continues."""
    message = service_pb2.ModelStreamInferResponse(error_message=error_message)
    message.infer_response.id = request.id
    message.infer_response.model_name = request.model_name
    message.infer_response.model_version = request.model_version
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return message
