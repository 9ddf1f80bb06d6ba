"""Metadata, configurations and statistics over HTTP, field by field."""

from __future__ import annotations

import json

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.serving.http.metadata import model_config, model_metadata, model_statistics, repository_index
from moonfed.serving.models.inference_request import IndexEntry, ModelMetadata, TensorMetadata
from moonfed.serving.models.statistics import BatchStatistics, Duration, VersionStatistics

METADATA = ModelMetadata(
    name="digits",
    versions=("7", "8"),
    platform="onnxruntime_onnx",
    inputs=(TensorMetadata(name="inputs", datatype="UINT8", shape=(-1, 28, 28, 1)),),
    outputs=(TensorMetadata(name="probabilities", datatype="FP32", shape=(-1, 10)),),
)


def test_a_model_is_described_as_the_protocol_has_it() -> None:
    assert model_metadata(METADATA) == {
        "name": "digits",
        "versions": ["7", "8"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "inputs", "datatype": "UINT8", "shape": [-1, 28, 28, 1]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    }


def test_the_index_omits_what_is_empty() -> None:
    entries = [
        IndexEntry(name="digits", version="7", state="READY", reason=""),
        IndexEntry(name="pets", version="1", state="UNAVAILABLE", reason="unloaded"),
        IndexEntry(name="unknown", version="", state="", reason=""),
    ]
    assert repository_index(entries) == [
        {"name": "digits", "version": "7", "state": "READY"},
        {"name": "pets", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "unknown"},
    ]


@pytest.mark.parametrize(
    ("written", "field", "expected"),
    [
        ("max_batch_size: 8", "max_batch_size", 8),
        ('input { name: "x" data_type: TYPE_FP32 dims: 4 }', "input", "TYPE_FP32"),
        ("instance_group { kind: KIND_CPU count: 2 }", "instance_group", "KIND_CPU"),
        ("version_policy { specific { versions: 7 } }", "version_policy", {"specific": {"versions": [7]}}),
        ('parameters { key: "threads" value { string_value: "2" } }', "parameters", {"threads": {"string_value": "2"}}),
    ],
)
def test_a_configuration_has_the_names_of_config_pbtxt_and_numbers(written: str, field: str, expected: object) -> None:
    found = model_config(text_format.Parse(written, model_config_pb2.ModelConfig()))
    value = found[field]
    if isinstance(value, list):
        (value,) = value
        value = value.get("data_type", value.get("kind"))
    assert value == expected
    json.dumps(found)


def test_a_configuration_has_defaults_but_no_absent_messages() -> None:
    found = model_config(model_config_pb2.ModelConfig(name="digits"))
    assert (found["name"], found["max_batch_size"], found["input"], found["parameters"]) == ("digits", 0, [], {})
    assert "dynamic_batching" not in found
    assert "version_policy" not in found


def test_bytes_of_a_configuration_become_text() -> None:
    message = model_config_pb2.ModelConfig()
    message.model_operations.op_library_filename.append("a.so")
    assert model_config(message)["model_operations"] == {"op_library_filename": ["a.so"]}


def test_statistics_have_a_count_and_nanoseconds_for_every_phase() -> None:
    counts = VersionStatistics(
        name="digits",
        version="7",
        last_inference_ms=99,
        inference_count=5,
        execution_count=2,
        success=Duration(count=3, ns=30),
        fail=Duration(count=1, ns=10),
        queue=Duration(count=3, ns=6),
        compute_input=Duration(count=2, ns=1),
        compute_infer=Duration(count=2, ns=20),
        compute_output=Duration(count=2, ns=2),
        batches=(
            BatchStatistics(
                batch_size=2,
                compute_input=Duration(count=2, ns=1),
                compute_infer=Duration(count=2, ns=20),
                compute_output=Duration(count=2, ns=2),
            ),
        ),
    )
    (found,) = model_statistics([counts])["model_stats"]
    assert (found["name"], found["version"], found["last_inference"]) == ("digits", "7", 99)
    assert (found["inference_count"], found["execution_count"]) == (5, 2)
    assert found["inference_stats"] == {
        "success": {"count": 3, "ns": 30},
        "fail": {"count": 1, "ns": 10},
        "queue": {"count": 3, "ns": 6},
        "compute_input": {"count": 2, "ns": 1},
        "compute_infer": {"count": 2, "ns": 20},
        "compute_output": {"count": 2, "ns": 2},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    assert found["batch_stats"] == [
        {
            "batch_size": 2,
            "compute_input": {"count": 2, "ns": 1},
            "compute_infer": {"count": 2, "ns": 20},
            "compute_output": {"count": 2, "ns": 2},
        }
    ]
