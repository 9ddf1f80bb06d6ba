from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from moonfed.errors import InvalidInput
from moonfed.serving.models.inference_request import Array, InferRequest
from moonfed.serving.models.tensor_codec import DTYPES, bytes_array, datatype_of, decode, encode
from tests.support.model_repositories import BATCHED, identity, serve, write_model

NUMBERS = [dtype for dtype in DTYPES.values() if dtype != np.object_]


def decoded(raw: bytes, datatype: str, shape: tuple[int, ...]) -> Array:
    return decode(raw, datatype, shape, name="x", model="m", request_id="7")


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_side=0))))
def test_numbers_survive_as_they_are(array: Array) -> None:
    datatype = datatype_of(array)
    assert datatype == np_to_triton_dtype(array.dtype)
    found = decoded(encode(array), datatype, array.shape)
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


@given(st.lists(st.binary(max_size=20), max_size=12), st.sampled_from([1, 2, 3]))
def test_bytes_survive_as_triton_writes_them(elements: list[bytes], columns: int) -> None:
    whole = len(elements) - len(elements) % columns
    array = bytes_array(elements[:whole]).reshape(-1, columns)
    if whole:
        assert encode(array) == serialize_byte_tensor(array).item()
    found = decoded(encode(array), "BYTES", array.shape)
    assert (found.shape, found.tolist()) == (array.shape, array.tolist())


def test_numbers_are_not_copied() -> None:
    raw = np.arange(3, dtype=np.float32).tobytes()
    assert np.shares_memory(decoded(raw, "FP32", (3,)), np.frombuffer(raw, np.uint8))


@pytest.mark.parametrize(
    ("raw", "datatype", "shape", "says"),
    [
        (bytes(40), "FP32", (2, 4), "input byte size mismatch for input 'x' for model 'm'. Expected 32, got 40$"),
        (b"", "INT64", (1,), "input byte size mismatch for input 'x' for model 'm'. Expected 8, got 0$"),
        (bytes(8), "BYTES", (3,), "expected 3 string elements for inference input 'x' for model 'm', got 2$"),
        (bytes(12), "BYTES", (2,), "unexpected number of string elements 3 for inference .* 'm', expecting 2$"),
        (struct.pack("<I", 9) + b"short", "BYTES", (1,), "incomplete string data .* length 9 but only 5 bytes"),
        (bytes(3), "BYTES", (1,), "incomplete string length indicator for inference input 'x' .* but only 3 bytes"),
        (bytes(4), "BF16", (2,), "inference input 'x' data-type is 'BF16'; it must be one of BOOL, UINT8"),
        (bytes(4), "FP32", (-1, -1), "no length below 0"),
        (bytes(4), "FP32", (2**62, 4), "Expected 73786976294838206464, got 4"),
    ],
)
def test_bytes_that_do_not_fit_are_rejected_in_tritons_words(
    raw: bytes, datatype: str, shape: tuple[int, ...], says: str
) -> None:
    with pytest.raises(InvalidInput, match=r"^\[request id: 7\] .*" + says):
        decoded(raw, datatype, shape)


def test_strings_pass_through_a_model_as_bytes(tmp_path: Path) -> None:
    write_model(tmp_path, "same", 1, identity(), BATCHED)
    models = serve(tmp_path)
    x = bytes_array(["Größe".encode(), b"", b"a", b"b"]).reshape(2, 2)
    found: dict[str, Any] = dict(models.infer(InferRequest(model="same", inputs={"x": x})).outputs)
    assert found["y"].tolist() == x.tolist()
    with pytest.raises(InvalidInput, match="input 'x' is not UTF-8"):
        models.infer(InferRequest(model="same", inputs={"x": bytes_array([b"\xff", b""]).reshape(1, 2)}))
