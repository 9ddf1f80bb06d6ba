from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult

from moonfed.errors import InvalidInput
from moonfed.serving.http import codec
from moonfed.serving.http.codec import OutputEncoding
from moonfed.serving.models.inference_request import Array, InferResponse, RequestedOutput
from tests.support.tensor_strategies import objects, same, tensors

Loose = Any

BINARY = OutputEncoding(default=True, outputs={})
TEXT = OutputEncoding(default=False, outputs={})


def input_of(name: str, datatype: str, array: Array, *, binary: bool) -> Loose:
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, binary_data=binary)


@given(st.lists(st.tuples(tensors(text=True), st.booleans()), min_size=1, max_size=3))
def test_tritonclients_requests_are_decoded_to_the_same_arrays(
    found: list[tuple[tuple[str, Array], bool]],
) -> None:
    inputs = [input_of(f"in{n}", *each, binary=binary) for n, (each, binary) in enumerate(found)]
    body, length = InferenceServerClient.generate_request_body(inputs, request_id="seven")
    request, form = codec.decode_request(body, length, "m", "2")
    assert (request.model, request.version, request.id) == ("m", "2", "seven")
    for n, ((datatype, array), binary) in enumerate(found):
        got = request.inputs[f"in{n}"]
        if binary or not datatype.startswith("FP"):
            assert same(got, array)
        else:  # a NaN has more than one form, and JSON one
            assert got.dtype == array.dtype
            assert np.array_equal(got, array, equal_nan=True)
    assert form.is_binary("anything")  # tritonclient's default


@given(st.lists(tensors(text=True), min_size=1, max_size=3), st.booleans())
def test_tritonclient_decodes_our_responses(found: list[tuple[str, Array]], binary: bool) -> None:
    outputs = {f"out{n}": array for n, (_, array) in enumerate(found)}
    response = InferResponse(model="m", version="2", id="seven", outputs=outputs)
    body = codec.encode_response(response, BINARY if binary else TEXT)
    assert (body.header_length is not None) is binary
    result = InferResult.from_response_body(body.content, header_length=body.header_length)
    answer = result.get_response()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("m", "2", "seven")
    for n, (datatype, array) in enumerate(found):
        assert result.get_output(f"out{n}")["datatype"] == datatype
        got = result.as_numpy(f"out{n}")
        if datatype == "BYTES" and not binary:
            got = objects([element.encode() for element in got.ravel()], got.shape)
        if not array.size:  # for which tritonclient forgets the dtype
            assert got.shape == array.shape
        elif binary or not datatype.startswith("FP"):
            assert same(got, array)
        else:
            assert np.array_equal(got, array, equal_nan=True)


def test_each_output_has_its_requested_encoding() -> None:
    wanted = [InferRequestedOutput("a", binary_data=False), InferRequestedOutput("b", binary_data=True, class_count=2)]
    inputs = [input_of("x", "FP32", np.ones((1, 2), np.float32), binary=True)]
    body, length = InferenceServerClient.generate_request_body(inputs, outputs=wanted, timeout=250)
    request, form = codec.decode_request(body, length, "m", "")
    assert request.outputs == (RequestedOutput(name="a"), RequestedOutput(name="b", class_count=2))
    assert request.timeout_us == 250
    assert (form.is_binary("a"), form.is_binary("b"), form.is_binary("c")) == (False, True, False)
    numbers = np.array([[1.5, 2.0]], np.float32)
    answer = codec.encode_response(
        InferResponse(model="m", version="1", id="", outputs={"a": numbers, "b": numbers}), form
    )
    document = json.loads(answer.content[: answer.header_length])
    assert document["outputs"][0] == {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0]}
    assert document["outputs"][1]["parameters"] == {"binary_data_size": 8}
    assert answer.content[answer.header_length or 0 :] == numbers.tobytes()
    assert "id" not in document


def test_nested_arrays_are_flattened() -> None:
    tensor = {"name": "x", "datatype": "INT64", "shape": [2, 2], "data": [[1, 2], [3, 4]]}
    names = {"name": "s", "datatype": "BYTES", "shape": [2, 1], "data": [["ä"], ["b"]]}
    request, form = codec.decode_request(json.dumps({"inputs": [tensor, names]}).encode(), None, "m", "")
    assert same(request.inputs["x"], np.array([[1, 2], [3, 4]], np.int64))
    assert same(request.inputs["s"], objects(["ä".encode(), b"b"], (2, 1)))
    assert not form.is_binary("y")  # JSON is answered with JSON


def test_integers_below_and_above_the_signed_range_may_be_mixed() -> None:
    numbers = [0, 2**63, 2**64 - 1]
    body = body_of(datatype="UINT64", shape=[3], data=numbers)
    request, _ = codec.decode_request(body, None, "m", "")
    assert same(request.inputs["x"], np.array(numbers, np.uint64))


def body_of(**changes: Loose) -> bytes:
    tensor: dict[str, Any] = {"name": "x", "datatype": "UINT8", "shape": [2], "data": [1, 2], **changes}
    return json.dumps({"inputs": [{key: value for key, value in tensor.items() if value is not None}]}).encode()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "failed to parse the request JSON buffer"),
        (b"[]", "failed to parse the request JSON buffer: it must be an object"),
        (b"\xff", "failed to parse the request JSON buffer"),
        (b"{}", "Unable to parse 'inputs': it must be an array of objects"),
        (b'{"inputs": [1]}', "Unable to parse 'inputs': it must be an array of objects"),
        (b'{"id": 7, "inputs": []}', "Unable to parse 'id': it must be a string"),
        (b'{"inputs": [], "parameters": 1}', "Unable to parse 'parameters': it must be an object"),
        (b'{"inputs": [], "parameters": {"timeout": "1"}}', "Unable to parse 'timeout': it must be a whole number"),
        (b'{"inputs": [], "parameters": {"timeout": 9223372036854775808}}', "Unable to parse 'timeout': it must be a"),
        (b'{"inputs": [], "outputs": [{}]}', "Unable to parse 'name': it must be a string"),
        (
            b'{"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": -1}}]}',
            "Unable to parse 'classification': it must be a whole number, 0 or more",
        ),
        (
            b'{"inputs": [], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}',
            "Unable to parse 'binary_data': it must be true or false",
        ),
        (body_of(name=None), "Unable to parse 'name': it must be a string"),
        (body_of(shape=[-1]), "Unable to parse 'shape'"),
        (body_of(shape=[2.0]), "Unable to parse 'shape'"),
        (body_of(datatype="FP8"), "invalid datatype for input x: 'FP8'; it must be one of BOOL"),
        (body_of(data=None), "Input must set only one of the following fields: 'data', 'binary_data_size' in"),
        (body_of(data={}), "Unable to parse 'data' of input 'x': it must be an array"),
        (body_of(data=[1, 2, 3]), "Shape does not match true shape of 'data' field: input 'x' is [2], with 3 values"),
        (body_of(data=[[1], [2, 3]]), "it must be an array of UINT8"),
        (body_of(data=[1.5, 2]), "it must be an array of UINT8, not of fractions"),
        (body_of(data=[True, False]), "it must be an array of UINT8, not of booleans"),
        (body_of(data=["1", "2"]), "it must be an array of UINT8, not of strings"),
        (body_of(data=[-1, 2]), "it must be an array of UINT8, from 0 to 255; it has values from -1 to 2"),
        (body_of(data=[1, 2**70]), "it must be an array of UINT8, not of object"),
        (body_of(datatype="FP32", data=[1.5, 10**400]), "it must be an array of FP32, not of object"),
        (body_of(datatype="BOOL"), "it must be an array of BOOL, not of whole numbers"),
        (body_of(datatype="BYTES"), "input 'x' has an element that is not a string"),
        (body_of(parameters={"binary_data_size": 2}), "But set 'data' 'binary_data_size'"),
        (
            body_of(data=None, parameters={"binary_data_size": 2}),
            "unexpected size for input 'x', expecting 2 additional",
        ),
        (body_of(data=None, parameters={"shared_memory_region": "r"}), "which this server does not offer"),
    ],
)
def test_invalid_requests_are_rejected_with_a_message(body: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        codec.decode_request(body, None, "m", "")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("header_length", "extra", "sentence"),
    [
        (10_000, b"", "inference header size should be in range (0, "),
        (None, b"1", "failed to parse the request JSON buffer"),
        (0, b"\x01", "unexpected size for input 'x', expecting 1 additional bytes for model 'm'"),
        (0, b"\x01\x02\x03", "unexpected additional input data for model 'm'"),
    ],
)
def test_bytes_after_the_json_match_its_sizes_exactly(header_length: int | None, extra: bytes, sentence: str) -> None:
    header = body_of(data=None, parameters={"binary_data_size": 2})
    length = len(header) if header_length == 0 else header_length
    with pytest.raises(InvalidInput) as caught:
        codec.decode_request(header + extra, length, "m", "")
    assert sentence in str(caught.value)


def test_outputs_are_counted() -> None:
    body = json.dumps({"inputs": [], "outputs": [{"name": "y"}] * 1001}).encode()
    with pytest.raises(InvalidInput, match="1001 outputs are requested; at most 1000 may be"):
        codec.decode_request(body, None, "m", "")
