from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult, service_pb2
from tritonclient.grpc._utils import _get_inference_request

from moonfed.errors import InvalidInput
from moonfed.serving.grpc import codec
from moonfed.serving.models.inference_request import Array, InferResponse, RequestedOutput
from tests.support.tensor_strategies import NUMBERS, objects, same, tensors

Message = Any  # the stubs have no types

ASKED = "[request id: seven] "
CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def asked(inputs: list[Any], outputs: list[Any] | None = None, **named: Message) -> Message:
    """Return the message that tritonclient sends."""
    settings = {
        "model_name": "m",
        "model_version": "2",
        "request_id": "seven",
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
        "priority": 0,
        "timeout": None,
        "parameters": None,
    }
    return _get_inference_request(inputs=inputs, outputs=outputs, **{**settings, **named})


def input_of(name: str, datatype: str, array: Array) -> Message:
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


@given(st.lists(tensors(), min_size=1, max_size=3))
def test_tritonclients_requests_are_decoded_to_the_same_arrays(found: list[tuple[str, Array]]) -> None:
    message = asked([input_of(f"in{n}", *each) for n, each in enumerate(found)])
    request = codec.decode_request(service_pb2.ModelInferRequest.FromString(message.SerializeToString()))
    assert (request.model, request.version, request.id) == ("m", "2", "seven")
    assert list(request.inputs) == [f"in{n}" for n in range(len(found))]
    assert all(same(request.inputs[f"in{n}"], array) for n, (_, array) in enumerate(found))


@given(tensors(*CONTENTS))
def test_values_one_by_one_are_the_same_arrays(tensor: tuple[str, Array]) -> None:
    datatype, array = tensor
    message = service_pb2.ModelInferRequest(model_name="m")
    given_input = message.inputs.add(name="x", datatype=datatype, shape=array.shape)
    getattr(given_input.contents, CONTENTS[datatype]).extend(array.ravel().tolist())
    assert same(codec.decode_request(message).inputs["x"], array)


@given(st.lists(tensors(), min_size=1, max_size=3))
def test_tritonclient_decodes_our_responses(found: list[tuple[str, Array]]) -> None:
    outputs = {f"out{n}": array for n, (_, array) in enumerate(found)}
    response = InferResponse(model="m", version="2", id="seven", outputs=outputs)
    message = service_pb2.ModelInferResponse.FromString(codec.encode_response(response).SerializeToString())
    result = InferResult(message)
    assert (message.model_name, message.model_version, message.id) == ("m", "2", "seven")
    for n, (datatype, array) in enumerate(found):
        assert result.get_output(f"out{n}").datatype == datatype
        assert same(result.as_numpy(f"out{n}"), array)


def test_outputs_classes_and_timeouts_are_taken_over() -> None:
    outputs = [InferRequestedOutput("a"), InferRequestedOutput("b", class_count=3)]
    message = asked([input_of("x", "FP32", np.ones((1, 2), np.float32))], outputs, timeout=250)
    request = codec.decode_request(message)
    assert request.outputs == (RequestedOutput(name="a"), RequestedOutput(name="b", class_count=3))
    assert request.timeout_us == 250


def with_input(**fields: Message) -> Message:
    message = service_pb2.ModelInferRequest(model_name="m", id="seven")
    message.inputs.add(**{"name": "x", "datatype": "FP32", "shape": [1, 2], **fields})
    return message


def two_tensors() -> Message:
    message = with_input()
    message.inputs.add(name="y", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(8))
    return message


def one_too_many() -> Message:
    message = with_input()
    message.raw_input_contents.extend([bytes(8), bytes(8)])
    return message


def twice() -> Message:
    message = with_input()
    message.inputs.append(message.inputs[0])
    message.raw_input_contents.extend([bytes(8), bytes(8)])
    return message


def both_ways() -> Message:
    message = with_input()
    message.inputs[0].contents.fp32_contents.extend([1, 2])
    message.raw_input_contents.append(bytes(8))
    return message


def shared(where: str) -> Message:
    message = with_input()
    message.raw_input_contents.append(bytes(8))
    if where == "output":
        message.outputs.add(name="y")
    tensor = message.inputs[0] if where == "input" else message.outputs[0]
    tensor.parameters["shared_memory_region"].string_param = "region"
    return message


def classification(**value: Message) -> Message:
    message = with_input()
    message.raw_input_contents.append(bytes(8))
    output = message.outputs.add(name="y")
    output.parameters["classification"].MergeFrom(service_pb2.InferParameter(**value))
    return message


def timeout(**value: Message) -> Message:
    message = with_input()
    message.raw_input_contents.append(bytes(8))
    message.parameters["timeout"].MergeFrom(service_pb2.InferParameter(**value))
    return message


def values(count: int, *, datatype: str = "FP32") -> Message:
    message = with_input(datatype=datatype)
    message.inputs[0].contents.fp32_contents.extend([1.0] * count)
    return message


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (two_tensors(), "unable to find data for input tensor 'y' for model 'm' in request."),
        (one_too_many(), ASKED + "expected 1 raw input contents, one for each input of model 'm', got 2"),
        (twice(), ASKED + "input 'x' already exists in request"),
        (both_ways(), "contents field must not be specified when using raw_input_contents for 'x' for model 'm'"),
        (shared("input"), ASKED + "'x' uses shared memory, which this server does not offer"),
        (shared("output"), ASKED + "'y' uses shared memory, which this server does not offer"),
        (classification(int64_param=0), ASKED + "invalid value for 'classification' parameter, expected >= 1, got 0"),
        (
            classification(string_param="3"),
            ASKED + "invalid value type for 'classification' parameter, expected int64_param",
        ),
        (timeout(int64_param=-1), ASKED + "invalid value for 'timeout' parameter, expected >= 0, got -1"),
        (timeout(bool_param=True), ASKED + "invalid value type for 'timeout' parameter, expected int64_param"),
        (values(0), "unable to find data for input tensor 'x' for model 'm' in request."),
        (values(3), ASKED + "input byte size mismatch for input 'x' for model 'm'. Expected 8, got 12"),
        (
            values(2, datatype="INT8"),
            "unexpected explicit tensor data for input tensor 'x' for model 'm' of type 'FP32'",
        ),
        (values(2, datatype="FP16"), "of type 'FP32', expected datatype 'FP16'"),
        (with_input(datatype="FP16"), "unable to find data for input tensor 'x' for model 'm' in request."),
    ],
)
def test_invalid_requests_are_rejected_with_a_message(message: Message, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        codec.decode_request(message)
    assert sentence in str(caught.value)
    assert str(caught.value).count(ASKED) == sentence.count(ASKED)


def test_a_number_outside_its_datatype_is_rejected() -> None:
    message = with_input(datatype="UINT8")
    message.inputs[0].contents.uint_contents.extend([1, 256])
    with pytest.raises(InvalidInput, match="do not fit UINT8"):
        codec.decode_request(message)


def test_every_datatype_of_numbers_has_a_way_value_by_value_but_half_precision() -> None:
    assert set(CONTENTS) == {*NUMBERS, "BYTES"} - {"FP16"}


def test_a_streamed_answer_is_its_requests_last_one() -> None:
    response = InferResponse(model="m", version="1", id="a", outputs={"y": objects([b"1:0"], (1,))})
    assert codec.encode_stream_response(response).infer_response.parameters["triton_final_response"].bool_param
    rejected = codec.encode_stream_error("no", asked([]))
    assert (rejected.error_message, rejected.infer_response.id) == ("no", "seven")
    assert rejected.infer_response.parameters["triton_final_response"].bool_param


def test_outputs_are_counted_before_they_are_decoded() -> None:
    message = service_pb2.ModelInferRequest.FromString(b"\x32\x00" * 1001)
    with pytest.raises(InvalidInput, match="1001 outputs are requested; at most 1000 may be"):
        codec.decode_request(message)
