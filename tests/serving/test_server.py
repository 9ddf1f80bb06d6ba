"""A real server process, called with tritonclient as users do."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_aio
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from moonfed.serving.models.inference_request import Array
from tests.support.model_repositories import CLASSES, batch_of, linear, summing, write_model
from tests.support.server_process import Server, answer_of, get, served, waits_for

TRITON = {"grpc": triton_grpc, "http": triton_http}
LABELS = ("cat", "dog", "owl")
NO_ID = "[request id: <id_unknown>] "  # begins Triton's sentences about requests
Client = Any  # tritonclient has no types
Input = Any
CONFIG = """
max_batch_size: 16
output { name: "probabilities" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
version_policy { all {} }
"""
FAILING_WARM_UP = """
max_batch_size: 8
model_warmup { batch_size: 1 inputs { key: "inputs" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }
"""
# Models that cannot be served: the version in the index, and why.
UNAVAILABLE = {
    "broken": ("1", "the graph is not an ONNX model, or is damaged"),
    "cold": ("1", "onnx runtime error: "),
    "gap": ("4", "version 4 is specified for model 'gap', but the version directory is not present"),
    "hollow": ("1", "version 1 of model 'hollow' has no file model.onnx"),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    write_model(root, "linear", 1, linear(seed=1), CONFIG)
    write_model(root, "linear", 2, linear(seed=2), CONFIG)
    (root / "linear" / "labels.txt").write_text("\n".join(LABELS))
    write_model(root, "broken", 1, b"not an ONNX file")
    write_model(root, "cold", 1, linear(), FAILING_WARM_UP)
    write_model(root, "gap", 1, linear(), "version_policy { specific { versions: 4 } }")
    write_model(root, "hollow", 1, linear())
    (root / "hollow" / "1" / "model.onnx").unlink()
    write_model(root, "sum", 1, summing(), "max_batch_size: 8")
    write_model(root, "pair", 1, linear(), waits_for(2))
    write_model(root, "crowd", 1, linear(seed=1), waits_for(32))
    return root


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(repository, tmp_path_factory.mktemp("log") / "log") as started:
        yield started


@pytest.fixture(params=["grpc", "http"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(server: Server, protocol: str) -> Iterator[Client]:
    with TRITON[protocol].InferenceServerClient(getattr(server, protocol)) as made:
        yield made


def input_of(protocol: str, array: Array, *, name: str = "inputs", datatype: str = "FP32") -> Input:
    return TRITON[protocol].InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def direct(repository: Path, version: int, inputs: Array) -> Array:
    """Return ONNX Runtime's own outputs."""
    path = repository / "linear" / str(version) / "model.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {"inputs": inputs})[0]
    return found


def until(condition: Callable[[], bool]) -> None:
    while not condition():  # otherwise the test times out
        threading.Event().wait(0.01)


def test_responses_match_onnx_runtime_bit_for_bit(repository: Path, client: Client, protocol: str) -> None:
    inputs = batch_of(5)
    for asked, version in (("", 2), ("1", 1), ("2", 2)):
        result = client.infer("linear", [input_of(protocol, inputs)], model_version=asked, request_id="seven")
        assert result.as_numpy("probabilities").tobytes() == direct(repository, version, inputs).tobytes()
        answer = result.get_response(as_json=True) if protocol == "grpc" else result.get_response()
        assert (answer["model_name"], answer["model_version"], answer["id"]) == ("linear", str(version), "seven")


def test_the_aio_client_sends_concurrent_requests(repository: Path, server: Server) -> None:
    batches = [batch_of(1 + n % 3, seed=n) for n in range(20)]

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            asked = [client.infer("linear", [input_of("grpc", each)]) for each in batches]
            return list(await asyncio.gather(*asked))

    for inputs, result in zip(batches, asyncio.run(ask()), strict=True):
        assert np.allclose(result.as_numpy("probabilities"), direct(repository, 2, inputs), atol=1e-7)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_http_supports_json_and_binary_tensors(
    repository: Path, server: Server, binary_in: bool, binary_out: bool, packed: str | None
) -> None:
    inputs = batch_of(7)
    asked = triton_http.InferInput("inputs", [7, 4], "FP32").set_data_from_numpy(inputs, binary_data=binary_in)
    wanted = triton_http.InferRequestedOutput("probabilities", binary_data=binary_out)
    with triton_http.InferenceServerClient(server.http) as client:
        result = client.infer(
            "linear",
            [asked],
            outputs=[wanted],
            request_compression_algorithm=packed,
            response_compression_algorithm=packed,
        )
    assert result.as_numpy("probabilities").tobytes() == direct(repository, 2, inputs).tobytes()


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_grpc_accepts_compressed_messages(repository: Path, server: Server, packed: str) -> None:
    inputs = batch_of(7)
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer("linear", [input_of("grpc", inputs)], compression_algorithm=packed)
    assert result.as_numpy("probabilities").tobytes() == direct(repository, 2, inputs).tobytes()


def test_classes_are_returned_with_their_names(repository: Path, client: Client, protocol: str) -> None:
    inputs = batch_of(2)
    wanted = TRITON[protocol].InferRequestedOutput("probabilities", class_count=CLASSES)
    result = client.infer("linear", [input_of(protocol, inputs)], outputs=[wanted]).as_numpy("probabilities")
    for row, expected in zip(result, direct(repository, 2, inputs), strict=True):
        found = [each.decode().split(":") for each in row]
        best_first = np.argsort(-expected)
        assert [(int(index), label) for _, index, label in found] == [(int(i), LABELS[i]) for i in best_first]
        assert np.allclose([float(value) for value, _, _ in found], expected[best_first], atol=1e-6)


def test_the_server_and_its_models_describe_themselves(client: Client, protocol: str) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()  # though there are models that cannot be loaded: the others are served
    assert client.is_model_ready("linear")
    assert client.is_model_ready("linear", "1")
    assert not client.is_model_ready("linear", "9")
    assert not client.is_model_ready("broken")
    assert not client.is_model_ready("unheard-of")
    as_json = {"as_json": True} if protocol == "grpc" else {}
    assert client.get_server_metadata(**as_json)["name"] == "moonfed"
    metadata = client.get_model_metadata("linear", **as_json)
    assert metadata["versions"] == ["1", "2"]
    assert [int(n) for n in metadata["inputs"][0]["shape"]] == [-1, 4]
    assert metadata["outputs"][0] | {"shape": ""} == {"name": "probabilities", "datatype": "FP32", "shape": ""}
    config = client.get_model_config("linear", **as_json)
    config = config.get("config", config)
    assert config["max_batch_size"] == 16
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(n) for n in config["input"][0]["dims"]] == [4]


@pytest.mark.parametrize("model", UNAVAILABLE)
def test_a_model_that_fails_to_load_is_reported_and_the_others_are_served(
    repository: Path, server: Server, client: Client, protocol: str, model: str
) -> None:
    found = client.get_model_repository_index(**({"as_json": True} if protocol == "grpc" else {}))
    found = found["models"] if protocol == "grpc" else found
    entries = {(entry["name"], entry.get("version", "")): entry for entry in found}
    version, reason = UNAVAILABLE[model]
    assert entries[model, version]["state"] == "UNAVAILABLE"
    assert entries[model, version]["reason"].startswith(reason)
    assert entries["linear", "1"]["state"] == entries["linear", "2"]["state"] == "READY"
    assert f"model {model}" in server.log
    assert not client.is_model_ready(model)
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [input_of(protocol, batch_of(1))])
    assert caught.value.status() == ("StatusCode.NOT_FOUND" if protocol == "grpc" else "404")
    assert caught.value.message() == f"Request for unknown model: '{model}' has no available versions"
    answer = client.infer("linear", [input_of(protocol, batch_of(1))]).as_numpy("probabilities")
    assert answer.tobytes() == direct(repository, 2, batch_of(1)).tobytes()


def test_the_index_can_be_limited_to_ready_models(server: Server) -> None:
    ready = {"linear", "sum", "pair", "crowd"}
    by_http = json.loads(get(server.http, "/v2/repository/index", b'{"ready": true}')[1])
    assert {(entry["name"], entry["state"]) for entry in by_http} == {(name, "READY") for name in ready}
    with grpc.insecure_channel(server.grpc) as channel:
        stub = triton_grpc.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        by_grpc = stub.RepositoryIndex(triton_grpc.service_pb2.RepositoryIndexRequest(ready=True)).models
        assert {(entry.name, entry.state) for entry in by_grpc} == {(name, "READY") for name in ready}
        for action in ("Index", "ModelLoad", "ModelUnload"):
            request = getattr(triton_grpc.service_pb2, f"Repository{action}Request")(repository_name="others")
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub, f"Repository{action}")(request)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert get(server.http, "/v2/repository/others/index", b"{}")[0] == 501


def test_statistics_and_metrics_count_the_same(server: Server, client: Client, protocol: str) -> None:
    def counts() -> dict[str, int]:
        as_json = {"as_json": True} if protocol == "grpc" else {}
        found = client.get_inference_statistics("linear", "1", **as_json)["model_stats"][0]
        return {
            "nv_inference_count": int(found.get("inference_count", 0)),
            "nv_inference_exec_count": int(found.get("execution_count", 0)),
            "nv_inference_request_success": int(found["inference_stats"]["success"].get("count", 0)),
        }

    before = counts()
    client.infer("linear", [input_of(protocol, batch_of(3))], model_version="1")
    after = counts()
    assert {name: after[name] - before[name] for name in after} == {
        "nv_inference_count": 3,
        "nv_inference_exec_count": 1,
        "nv_inference_request_success": 1,
    }
    text = server.metrics()
    for name, count in after.items():
        assert f'\n{name}{{model="linear",version="1"}} {count}.0\n' in text


@pytest.mark.parametrize(
    ("model", "version", "inputs", "named", "output", "codes", "sentence"),
    [
        ("x", "", batch_of(1), {}, "", ("NOT_FOUND", 404), "Request for unknown model: 'x' is not found"),
        (
            "linear",
            "9",
            batch_of(1),
            {},
            "",
            ("NOT_FOUND", 404),
            "Request for unknown model: 'linear' version 9 is not found",
        ),
        (
            "broken",
            "1",
            batch_of(1),
            {},
            "",
            ("UNAVAILABLE", 503),
            "Request for unknown model: 'broken' version 1 is not at ready state",
        ),
        (
            "linear",
            "",
            batch_of(1).astype(np.float64),
            {"datatype": "FP64"},
            "",
            ("INVALID_ARGUMENT", 400),
            f"{NO_ID}inference input 'inputs' data-type is 'FP64', but model 'linear' expects 'FP32'",
        ),
        (
            "linear",
            "",
            np.ones((1, 5), np.float32),
            {},
            "",
            ("INVALID_ARGUMENT", 400),
            f"{NO_ID}unexpected shape for input 'inputs' for model 'linear'. Expected [-1,4], got [1,5]. NOTE: ",
        ),
        (
            "linear",
            "",
            batch_of(17),
            {},
            "",
            ("INVALID_ARGUMENT", 400),
            f"{NO_ID}inference request batch-size must be <= 16 for 'linear'",
        ),
        (
            "linear",
            "",
            batch_of(1),
            {"name": "y"},
            "",
            ("INVALID_ARGUMENT", 400),
            "unexpected inference input 'y' for model 'linear'",
        ),
        (
            "linear",
            "",
            batch_of(1),
            {},
            "y",
            ("INVALID_ARGUMENT", 400),
            "unexpected inference output 'y' for model 'linear'",
        ),
    ],
)
def test_errors_have_tritons_codes_and_messages(
    client: Client,
    protocol: str,
    model: str,
    version: str,
    inputs: Array,
    named: dict[str, str],
    output: str,
    codes: tuple[str, int],
    sentence: str,
) -> None:
    wanted = [TRITON[protocol].InferRequestedOutput(output)] if output else None
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [input_of(protocol, inputs, **named)], model_version=version, outputs=wanted)
    assert caught.value.status() == (f"StatusCode.{codes[0]}" if protocol == "grpc" else str(codes[1]))
    assert caught.value.message().startswith(sentence)


def test_an_error_message_too_long_for_a_status_is_truncated(server: Server) -> None:
    with (
        triton_grpc.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException) as caught,
    ):
        client.infer("x" * 100_000, [input_of("grpc", batch_of(1))])
    assert caught.value.status() == "StatusCode.NOT_FOUND"
    assert caught.value.message().startswith("Request for unknown model: 'xxx")


def test_an_onnx_runtime_failure_is_an_internal_error(client: Client, protocol: str) -> None:
    inputs = [
        input_of(protocol, np.ones((1, 3), np.float32), name="a"),
        input_of(protocol, batch_of(1)[:, :2], name="b"),
    ]
    with pytest.raises(InferenceServerException, match=r"onnx runtime error: .*broadcast") as caught:
        client.infer("sum", inputs)
    assert caught.value.status() == ("StatusCode.INTERNAL" if protocol == "grpc" else "500")


@pytest.mark.parametrize("size", [12, 20])
def test_a_wrong_number_of_bytes_is_rejected(server: Server, protocol: str, size: int) -> None:
    if protocol == "http":
        tensor = {"name": "inputs", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": size}}
        header = json.dumps({"inputs": [tensor]}).encode()
        length = {"Inference-Header-Content-Length": str(len(header))}
        status, body = get(server.http, "/v2/models/linear/infer", header + bytes(size), **length)
        assert status == 400
        sentence = json.loads(body)["error"]
    else:
        message = triton_grpc.service_pb2.ModelInferRequest(model_name="linear", raw_input_contents=[bytes(size)])
        message.inputs.add(name="inputs", datatype="FP32", shape=[1, 4])
        with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
            triton_grpc.service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(message)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        sentence = caught.value.details()
    about = "input byte size mismatch for input 'inputs' for model 'linear'."
    assert sentence == f"{NO_ID}{about} Expected 16, got {size}"


@pytest.mark.parametrize(("packed", "unpack"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_http_compresses_responses_on_request(server: Server, packed: str, unpack: Callable[[bytes], bytes]) -> None:
    tensor = {"name": "inputs", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    body = json.dumps({"inputs": [tensor]}).encode()
    plain = get(server.http, "/v2/models/linear/infer", body)[1]
    assert unpack(get(server.http, "/v2/models/linear/infer", body, **{"Accept-Encoding": packed})[1]) == plain


def test_metrics_are_text_for_prometheus(server: Server) -> None:
    with closing(HTTPConnection("127.0.0.1", server.ports["metrics_port"], timeout=60)) as connection:
        connection.request("GET", "/metrics")
        assert connection.getresponse().headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_streams_answer_in_order_and_continue_after_an_error(repository: Path, server: Server) -> None:
    answers: list[tuple[Any, Any]] = []
    ended = threading.Event()

    def take(result: Any, error: Any) -> None:
        answers.append((result, error))
        if len(answers) == 4:
            ended.set()

    batches = [batch_of(n + 1, seed=n) for n in range(3)]
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(take)
        client.async_stream_infer("linear", [input_of("grpc", batches[0])], request_id="0")
        client.async_stream_infer("unheard-of", [input_of("grpc", batches[0])], request_id="bad")
        for n in (1, 2):
            client.async_stream_infer(
                "linear", [input_of("grpc", batches[n])], request_id=str(n), enable_empty_final_response=True
            )
        assert ended.wait(60)
        client.stop_stream()
    assert "Request for unknown model: 'unheard-of' is not found" in answers.pop(1)[1].message()
    for n, (result, error) in enumerate(answers):
        assert error is None
        response = result.get_response()
        assert (response.id, response.parameters["triton_final_response"].bool_param) == (str(n), True)
        assert result.as_numpy("probabilities").tobytes() == direct(repository, 2, batches[n]).tobytes()


def test_open_streams_do_not_block_unary_requests(server: Server) -> None:
    clients = [triton_grpc.InferenceServerClient(server.grpc) for _ in range(20)]
    answered = [threading.Event() for _ in clients]
    for client, event in zip(clients, answered, strict=True):
        client.start_stream(lambda result, error, event=event: event.set())
        client.async_stream_infer("linear", [input_of("grpc", batch_of(1))])
    assert all(event.wait(60) for event in answered)  # all are open, at once
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        assert client.infer("linear", [input_of("grpc", batch_of(1))]).as_numpy("probabilities").shape == (1, 3)
    for client in clients:
        client.stop_stream()
        client.close()


def test_incomplete_messages_do_not_block_other_requests(server: Server) -> None:
    gate = threading.Event()

    def nothing() -> Iterator[bytes]:
        gate.wait()
        yield from ()

    with grpc.insecure_channel(server.grpc) as channel:
        method = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer", bytes, bytes)
        calls = [method.future(nothing()) for _ in range(12)]
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            for _ in range(20):
                client.infer("linear", [input_of("grpc", batch_of(1))])
        for call in calls:
            call.cancel()  # type: ignore[no-untyped-call]
        gate.set()


def test_requests_that_wait_for_each_other_all_succeed(repository: Path, server: Server) -> None:
    batches = [batch_of(1, seed=n) for n in range(32)]

    def ask(inputs: Array) -> Any:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            return client.infer("crowd", [input_of("grpc", inputs)]).as_numpy("probabilities")

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(ask, batches))
    expected = direct(repository, 1, np.concatenate(batches))  # which has the same weights
    assert np.allclose(np.concatenate(found), expected, atol=1e-6)


def test_a_client_that_disconnects_during_a_request_affects_no_other(server: Server, protocol: str) -> None:
    import socket

    host, port = getattr(server, protocol).split(":")
    if protocol == "http":
        with socket.create_connection((host, int(port))) as leaving:
            leaving.sendall(b"POST /v2/models/linear/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    else:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            call = client.async_infer("pair", [input_of("grpc", batch_of(1))], lambda result, error: None)
            until(lambda: server.waiting("pair") == 1)
            call.cancel()
        with triton_grpc.InferenceServerClient(server.grpc) as client:  # the one that is left is in a batch with this
            assert client.infer("pair", [input_of("grpc", batch_of(1))]).as_numpy("probabilities").shape == (1, 3)
    with TRITON[protocol].InferenceServerClient(getattr(server, protocol)) as client:
        client.infer("linear", [input_of(protocol, batch_of(1))])
    assert "Traceback" not in server.log


def test_grpc_health_is_served(server: Server) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "inference.GRPCInferenceService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="another"), timeout=60)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_unsupported_features_are_reported(server: Server) -> None:
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        for asked in (client.get_system_shared_memory_status, client.get_trace_settings, client.get_log_settings):
            with pytest.raises(InferenceServerException, match="is not supported by this server") as caught:
                asked()
            assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
    with triton_http.InferenceServerClient(server.http) as client:
        for asked in (client.get_system_shared_memory_status, client.get_trace_settings, client.get_log_settings):
            with pytest.raises(InferenceServerException, match="not supported by this server") as caught:
                asked()
            assert caught.value.status() == "501"


def test_http_has_no_other_endpoints(server: Server) -> None:
    assert get(server.http, "/v2/models/linear/nothing") == (
        404,
        b'{"error": "Not Found: GET /v2/models/linear/nothing"}',
    )
    assert get(server.http, "/v2/models/linear/infer") == (
        405,
        b'{"error": "Method Not Allowed: GET /v2/models/linear/infer"}',
    )
    assert answer_of(server.http, "/v2/models/linear/infer", {})[0] == 400
