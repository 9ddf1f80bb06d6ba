"""gRPC messages about models say the same as the JSON over HTTP, which tests/serving/http/test_metadata.py checks."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from moonfed.serving.grpc import metadata as grpc_metadata
from moonfed.serving.http import metadata as http_metadata
from moonfed.serving.models.inference_request import IndexEntry, ModelMetadata, TensorMetadata
from moonfed.serving.models.statistics import BatchStatistics, Duration, VersionStatistics

TENSOR = TensorMetadata(name="inputs", datatype="FP32", shape=(-1, 4))


def document(message: Any) -> dict[str, Any]:
    """A message as the JSON over HTTP has it: 64-bit numbers as numbers."""
    found = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return dict(numbers(found))


def numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: numbers(each) if name not in ("name", "version") else each for name, each in value.items()}
    if isinstance(value, list):
        return [numbers(each) for each in value]
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def test_the_server_names_itself_and_its_extensions() -> None:
    assert document(grpc_metadata.server_metadata("moonfed", "0.1.0", ("statistics",))) == {
        "name": "moonfed",
        "version": "0.1.0",
        "extensions": ["statistics"],
    }


def test_a_model_is_described_as_over_http() -> None:
    metadata = ModelMetadata(
        name="m", versions=("x",), platform="onnxruntime_onnx", inputs=(TENSOR, TENSOR), outputs=(TENSOR,)
    )
    assert document(grpc_metadata.model_metadata(metadata)) == http_metadata.model_metadata(metadata)


def test_statistics_are_those_over_http() -> None:
    names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    durations = {name: Duration(count=number, ns=100 * number) for number, name in enumerate(names, 1)}
    phases = {name: each for name, each in durations.items() if name.startswith("compute")}
    counts = VersionStatistics(
        name="m",
        version="3",
        last_inference_ms=5,
        inference_count=6,
        execution_count=7,
        batches=(BatchStatistics(batch_size=8, **phases),),
        **durations,  # type: ignore[arg-type]
    )
    found = document(grpc_metadata.model_statistics([counts]))
    (expected,) = http_metadata.model_statistics([counts])["model_stats"]
    (told,) = found["model_stats"]
    assert {name: told[name] for name in expected if name != "response_stats"} == {
        name: value for name, value in expected.items() if name != "response_stats"
    }


def test_the_index_lists_every_entry() -> None:
    entries = [
        IndexEntry(name="m", version="3", state="READY", reason=""),
        IndexEntry(name="n", version="", state="UNAVAILABLE", reason="config.pbtxt cannot be read"),
    ]
    message = grpc_metadata.repository_index(entries)
    assert [(each.name, each.version, each.state, each.reason) for each in message.models] == [
        ("m", "3", "READY", ""),
        ("n", "", "UNAVAILABLE", "config.pbtxt cannot be read"),
    ]
