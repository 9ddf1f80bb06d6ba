"""Decoders of the inference server: requests, model configs, labels."""

from __future__ import annotations

import json
import re

import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from moonfed.errors import MoonfedError
from moonfed.serving.grpc import codec as grpc_codec
from moonfed.serving.http import codec as http_codec
from moonfed.serving.http import compression as http_compression
from moonfed.serving.http.json_fields import parse_object
from moonfed.serving.models.classification import parse_labels
from moonfed.serving.models.config import complete_config, read_config
from moonfed.serving.models.inference_request import Array, InferRequest, InferResponse, TensorMetadata
from moonfed.serving.models.repository import confined
from moonfed.serving.models.tensor_codec import DTYPES, bytes_array, encode
from tests.fuzzing import scratch
from tests.fuzzing.decoder import Decoder

LIMIT = 1 << 16  # bytes that a decompressed body may have
INPUT = TensorMetadata(name="image", datatype="FP32", shape=(-1, 4))
OUTPUT = TensorMetadata(name="probabilities", datatype="FP32", shape=(-1, 3))


def _echo(request: InferRequest) -> InferResponse:
    """Return a request's tensors unchanged, like an identity model."""
    return InferResponse(model=request.model, version="1", id=request.id, outputs=request.inputs)


def _read_grpc(content: bytes) -> None:
    request = grpc_codec.decode_request(service_pb2.ModelInferRequest.FromString(content))
    grpc_codec.encode_response(_echo(request)).SerializeToString()


def _grpc_seeds() -> list[bytes]:
    found = []
    for datatype in DTYPES:
        raw = encode(_zeros(datatype))
        message = service_pb2.ModelInferRequest(model_name="m", id="1", raw_input_contents=[raw])
        message.inputs.add(name="image", datatype=datatype, shape=[2])
        message.outputs.add(name="image").parameters["classification"].int64_param = 2
        found.append(message.SerializeToString(deterministic=True))
    listed = service_pb2.ModelInferRequest(model_name="m")
    listed.inputs.add(name="image", datatype="INT8", shape=[1, 2]).contents.int_contents.extend([1, 2])
    listed.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"a")
    listed.parameters["timeout"].int64_param = 5
    return [*found, listed.SerializeToString(deterministic=True)]


def _zeros(datatype: str) -> Array:
    return bytes_array([b"a", b""]) if datatype == "BYTES" else np.zeros(2, DTYPES[datatype])


def _read_http(content: bytes) -> None:
    """Read the length of the JSON from the first line, and the body from the rest."""
    header, _, body = content.partition(b"\n")
    length = int(header) if re.fullmatch(rb"-?[0-9]{1,18}", header) else None
    request, encoding = http_codec.decode_request(body, length, "m", "")
    http_codec.encode_response(_echo(request), encoding)


def _http_seeds() -> list[bytes]:
    image = {"name": "image", "shape": [1, 2], "datatype": "FP32", "data": [[1, 2.5]]}
    text = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]}
    switch = {"name": "switch", "shape": [1], "datatype": "BOOL", "data": [True]}
    counts = {"name": "counts", "shape": [2], "datatype": "UINT64", "data": [1, 18446744073709551615]}
    output = {"name": "image", "parameters": {"classification": 2, "binary_data": False}}
    inside = {"id": "1", "inputs": [image, text, switch, counts], "outputs": [output], "parameters": {"timeout": 5}}
    binary = {"name": "image", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
    header = json.dumps({"inputs": [binary], "parameters": {"binary_data_output": True}}).encode()
    return [b"\n" + json.dumps(inside).encode(), f"{len(header)}\n".encode() + header + b"\x00" * 8]


def _read_compressed(content: bytes) -> None:
    """Decompress a body by its first line, the value of Content-Encoding and of Accept-Encoding."""
    header, _, body = content.partition(b"\n")
    accepted = http_compression.accepted_encoding(header.decode("latin-1"))
    if accepted:
        http_compression.decompress(body, accepted, LIMIT)


def _compressed_seeds() -> list[bytes]:
    return [f"{name};q=0.5\n".encode() + http_compression.compress(b"[1, 2]" * 9, name) for name in ("gzip", "deflate")]


def _read_config(content: bytes) -> None:
    """Read and complete a config, and follow the names of files in it."""
    directory = scratch.directory() / "m"
    directory.mkdir(exist_ok=True)
    (directory / "config.pbtxt").write_bytes(content)
    config = complete_config(read_config(directory).message, "m", [INPUT], [OUTPUT])
    confined(directory / "1", config.default_model_filename, "default_model_filename")
    for each in config.output:
        confined(directory, each.label_filename, "label_filename")


def _configs() -> list[bytes]:
    full = """name: "m"  backend: "onnxruntime"  max_batch_size: 8
input [ { name: "image" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "probabilities" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
instance_group [ { count: 2 kind: KIND_CPU } ]
version_policy: { specific: { versions: [ 1 ] } }
model_warmup [
  { name: "w" batch_size: 1 inputs { key: "image" value: { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }
]
parameters { key: "k" value: { string_value: "v" } }
"""
    return [full.encode(), b""]


def _read_labels(content: bytes) -> None:
    parse_labels(content, "labels.txt")


SERVING_DECODERS = (
    Decoder(name="grpc_request", read=_read_grpc, seeds=_grpc_seeds, rejections=(MoonfedError, DecodeError)),
    Decoder(name="http_request", read=_read_http, seeds=_http_seeds),
    Decoder(name="http_json", read=parse_object, seeds=lambda: [b'{"ready": true}']),
    Decoder(name="http_compression", read=_read_compressed, seeds=_compressed_seeds),
    Decoder(name="model_config", read=_read_config, seeds=_configs),
    Decoder(name="model_labels", read=_read_labels, seeds=lambda: [b"cat\ndog\n"]),
)
