"""Limits, shutdown, TLS and model control of real server processes with their own options."""

from __future__ import annotations

import gzip
import json
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from moonfed.serving.requests.api_keys import create_key
from tests.support.model_repositories import batch_of, linear, starts, write_model
from tests.support.server_certificates import write_certificate
from tests.support.server_process import ENVIRONMENT, FREE_PORTS, PROGRAM, Server, answer_of, get, served, waits_for

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]

LINEAR = "/v2/models/linear"
Result = Any  # tritonclient has no types


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    write_model(root, "linear", 1, linear())
    return root


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


def ask_grpc(server: Server, model: str = "linear", size: int = 1) -> Result:
    inputs = batch_of(size)
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        asked = triton_grpc.InferInput("inputs", list(inputs.shape), "FP32").set_data_from_numpy(inputs)
        return client.infer(model, [asked]).as_numpy("probabilities")


def json_request(size: int = 1) -> dict[str, Any]:
    inputs = batch_of(size)
    return {
        "inputs": [{"name": "inputs", "shape": list(inputs.shape), "datatype": "FP32", "data": inputs.ravel().tolist()}]
    }


def until_waiting(server: Server, model: str, count: int) -> None:
    while server.waiting(model) != count:  # otherwise the test times out
        threading.Event().wait(0.01)


def health_of(stub: Any) -> Iterator[str]:
    for update in stub.Watch(health_pb2.HealthCheckRequest(service="")):
        yield health_pb2.HealthCheckResponse.ServingStatus.Name(update.status)


def infer_later(channel: grpc.Channel, gate: threading.Event) -> Any:
    """Start a ModelInfer of "pair" that sends its message when the gate opens."""
    message = triton_grpc.service_pb2.ModelInferRequest(model_name="pair", raw_input_contents=[batch_of(1).tobytes()])
    message.inputs.add(name="inputs", datatype="FP32", shape=[1, 4])

    def messages() -> Iterator[bytes]:
        gate.wait()
        yield message.SerializeToString()

    answer = triton_grpc.service_pb2.ModelInferResponse.FromString
    method = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer", bytes, answer)
    return method.future(messages())


def until_full(channel: grpc.Channel) -> None:
    """Wait until the server is full, when it rejects a stream, which is not a request itself."""
    stub = triton_grpc.service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def open_streams() -> None:
        while True:  # otherwise the test times out
            assert list(stub.ModelStreamInfer(iter(()))) == []

    with pytest.raises(grpc.RpcError, match="busy with"):
        open_streams()


def test_a_stopping_server_finishes_the_requests_in_flight(repository: Path, log_file: Path) -> None:
    write_model(repository, "pair", 1, linear(), waits_for(2))
    gate = threading.Event()
    with (
        ThreadPoolExecutor(1) as pool,
        served(repository, log_file, "--max-concurrent-requests", "2") as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        health = health_of(health_pb2_grpc.HealthStub(channel))
        assert next(health) == "SERVING"
        by_http = pool.submit(answer_of, server.http, "/v2/models/pair/infer", json_request())
        until_waiting(server, "pair", 1)
        by_grpc = infer_later(channel, gate)  # its call is taken, its message is still to come
        until_full(channel)
        server.process.terminate()
        assert next(health) == "NOT_SERVING"
        assert get(server.http, "/v2/health/ready") == (400, b'{"ready": false}')
        assert get(server.http, "/v2/health/live")[0] == 200
        assert get(server.http, f"{LINEAR}/ready")[0] == 400
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            assert client.is_server_live()
            assert not client.is_server_ready()
            assert not client.is_model_ready("linear")
        with pytest.raises(InferenceServerException, match="Server is stopping") as caught:
            ask_grpc(server)
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        status, document = answer_of(server.http, f"{LINEAR}/infer", json_request())
        assert (status, document["error"]) == (503, "Server is stopping and accepts no more inference requests")
        gate.set()
        assert len(by_grpc.result().raw_output_contents[0]) == 12
        assert by_http.result()[0] == 200
        assert server.process.wait(timeout=60) == 0
    assert "Traceback" not in server.log


def test_a_stop_waits_no_longer_than_drain_seconds(repository: Path, log_file: Path) -> None:
    write_model(repository, "pair", 1, linear(), waits_for(2))
    with ThreadPoolExecutor(1) as pool, served(repository, log_file, "--drain-seconds", "0") as server:
        waiting: Future[Any] = pool.submit(ask_grpc, server, "pair")
        until_waiting(server, "pair", 1)
        server.process.terminate()
        with pytest.raises(InferenceServerException):
            waiting.result()
        assert server.process.wait(timeout=60) == 1
    assert "stopping with 1 inference requests in flight" in server.log


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_a_waiting_stop(
    repository: Path, log_file: Path, numbers: tuple[signal.Signals, signal.Signals]
) -> None:
    write_model(repository, "pair", 1, linear(), waits_for(2))
    with (
        ThreadPoolExecutor(1) as pool,
        served(repository, log_file, "--drain-seconds", "3600") as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        health = health_of(health_pb2_grpc.HealthStub(channel))
        assert next(health) == "SERVING"
        waiting: Future[Any] = pool.submit(ask_grpc, server, "pair")
        until_waiting(server, "pair", 1)
        server.process.send_signal(numbers[0])
        assert next(health) == "NOT_SERVING"
        assert server.process.poll() is None
        server.process.send_signal(numbers[1])
        with pytest.raises(InferenceServerException):
            waiting.result()
        assert server.process.wait(timeout=60) == 1


def test_an_idle_stream_does_not_delay_a_stop(repository: Path, log_file: Path) -> None:
    with served(repository, log_file) as server, triton_grpc.InferenceServerClient(server.grpc) as client:
        ended = threading.Event()
        client.start_stream(lambda result, error: ended.set())
        inputs = triton_grpc.InferInput("inputs", [1, 4], "FP32").set_data_from_numpy(batch_of(1))
        client.async_stream_infer("linear", [inputs])
        assert ended.wait(60)
        assert server.stop() == 0
        client.stop_stream(cancel_requests=True)


def test_requests_beyond_the_limit_are_rejected(repository: Path, log_file: Path) -> None:
    write_model(repository, "pair", 1, linear(), waits_for(2))
    with (
        ThreadPoolExecutor(1) as pool,
        served(repository, log_file, "--max-concurrent-requests", "1") as server,
    ):
        waiting = pool.submit(ask_grpc, server, "pair")
        until_waiting(server, "pair", 1)
        with pytest.raises(InferenceServerException, match="busy with 1 inference requests, as many as") as caught:
            ask_grpc(server)
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        status, document = answer_of(server.http, f"{LINEAR}/infer", json_request())
        assert (status, document["error"].split(",")[0]) == (503, "Server is busy with 1 inference requests")
        assert get(server.http, "/v2/health/ready")[0] == 200  # what is no inference goes on
        assert get(server.http, LINEAR)[0] == 200
        server.process.kill()
        with pytest.raises(InferenceServerException):
            waiting.result()


class Stream:
    """An open stream of requests to "linear" whose responses are read one by one."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests = queue.SimpleQueue[Any]()
        stub = triton_grpc.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._answers = stub.ModelStreamInfer(iter(self._requests.get, None))

    def ask(self) -> str:
        """Return the error message; empty for a response."""
        message = triton_grpc.service_pb2.ModelInferRequest(
            model_name="linear", raw_input_contents=[batch_of(1).tobytes()]
        )
        message.inputs.add(name="inputs", datatype="FP32", shape=[1, 4])
        self._requests.put(message)
        return str(next(self._answers).error_message)

    def end(self) -> None:
        self._requests.put(None)
        assert list(self._answers) == []


def test_streams_beyond_the_limit_are_rejected(repository: Path, log_file: Path) -> None:
    with served(repository, log_file) as server, grpc.insecure_channel(server.grpc) as channel:
        streams = [Stream(channel) for _ in range(64)]
        assert [each.ask() for each in streams] == [""] * 64  # all are open, at once
        with pytest.raises(grpc.RpcError, match="busy with 64 streams, as many as it takes at once") as caught:
            Stream(channel).ask()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert ask_grpc(server).shape == (1, 3)
        for each in streams:
            each.end()
        assert server.stop() == 0


def test_requests_on_a_stream_count_towards_the_limit(repository: Path, log_file: Path) -> None:
    write_model(repository, "pair", 1, linear(), waits_for(2))
    with (
        ThreadPoolExecutor(1) as pool,
        served(repository, log_file, "--max-concurrent-requests", "1") as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        stream = Stream(channel)
        assert stream.ask() == ""
        waiting = pool.submit(ask_grpc, server, "pair")
        until_waiting(server, "pair", 1)
        assert stream.ask() == "Server is busy with 1 inference requests, as many as it takes at once"
        server.process.kill()
        with pytest.raises(InferenceServerException):
            waiting.result()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_disconnected_clients_queued_request_frees_its_place(repository: Path, log_file: Path, protocol: str) -> None:
    write_model(repository, "pair", 1, linear(), waits_for(2))
    with served(repository, log_file, "--max-concurrent-requests", "2") as server, ThreadPoolExecutor(2) as pool:
        for _ in range(3):  # if one place were lost each time, none would be left
            leave_while_waiting(server, protocol)
            assert ask_grpc(server, "pair").shape == (1, 3)  # in one batch with the request that was left behind
            both = [pool.submit(ask_when_there_is_room, server) for _ in range(2)]
            assert [each.result().shape for each in both] == [(1, 3), (1, 3)]
        assert server.stop() == 0
    assert "Traceback" not in server.log


def leave_while_waiting(server: Server, protocol: str) -> None:
    """Send a request to "pair" and disconnect before the response."""
    if protocol == "grpc":
        with grpc.insecure_channel(server.grpc) as channel:
            gate = threading.Event()
            gate.set()
            call = infer_later(channel, gate)
            until_waiting(server, "pair", 1)
            call.cancel()
        return
    host, port = server.http.split(":")
    body = json.dumps(json_request()).encode()
    head = f"POST /v2/models/pair/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as leaving:
        leaving.sendall(head.encode() + body)
        until_waiting(server, "pair", 1)


def ask_when_there_is_room(server: Server) -> Result:
    """Retry, since the abandoned request may be counted for a moment after its batch."""
    while (answer := ask_unless_busy(server)) is None:  # otherwise the test times out
        pass
    return answer


def ask_unless_busy(server: Server) -> Result | None:
    try:
        return ask_grpc(server, "pair")
    except InferenceServerException as error:
        if "busy with 2" not in str(error):
            raise
        return None


def test_a_flooded_model_rejects_requests_and_the_others_are_served(repository: Path, log_file: Path) -> None:
    bounded = waits_for(3).replace("preferred", "default_queue_policy { max_queue_size: 2 } preferred")
    write_model(repository, "bounded", 1, linear(), bounded)
    with ThreadPoolExecutor(2) as pool, served(repository, log_file) as server:
        waiting = [pool.submit(ask_grpc, server, "bounded") for _ in range(2)]
        until_waiting(server, "bounded", 2)
        with pytest.raises(InferenceServerException, match="Exceeds maximum queue size") as caught:
            ask_grpc(server, "bounded")
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        status, document = answer_of(server.http, "/v2/models/bounded/infer", json_request())
        assert (status, document["error"]) == (503, "[request id: <id_unknown>] Exceeds maximum queue size")
        assert ask_grpc(server).shape == (1, 3)
        assert 'nv_inference_request_failure{model="bounded",reason="REJECTED",version="1"} 2.0' in server.metrics()
        server.process.kill()
        for each in waiting:
            with pytest.raises(InferenceServerException):
                each.result()


def test_requests_larger_than_the_limit_are_rejected(repository: Path, log_file: Path) -> None:
    with served(repository, log_file, "--max-request-size", "4KB") as server:
        with pytest.raises(InferenceServerException, match="larger than max") as caught:
            ask_grpc(server, size=1000)
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        body = json.dumps(json_request(1000)).encode()
        status, answer = get(server.http, f"{LINEAR}/infer", body)
        assert (status, json.loads(answer)["error"]) == (
            413,
            f"the request is {len(body)} bytes; at most 4000 are accepted",
        )
        host, port = server.http.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as asking:  # before it sends so much
            head = f"POST {LINEAR}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n"
            asking.sendall(head.encode())
            with asking.makefile("rb") as answered:
                assert answered.readline().startswith(b"HTTP/1.1 413 ")
        with closing(HTTPConnection(server.http, timeout=60)) as connection:  # of a length that it does not announce
            connection.request("POST", f"{LINEAR}/infer", iter([body[:3000], body[3000:]]), encode_chunked=True)
            chunked = connection.getresponse()
            assert (chunked.status, b"at most 4000 are accepted" in chunked.read()) == (413, True)
        packed = gzip.compress(bytes(100_000))
        assert len(packed) < 4000
        status, answer = get(server.http, f"{LINEAR}/infer", packed, **{"Content-Encoding": "gzip"})
        assert (status, b"the decompressed body exceeds 4000 bytes" in answer) == (413, True)
        assert ask_grpc(server).shape == (1, 3)
        assert answer_of(server.http, f"{LINEAR}/infer", json_request())[0] == 200


def test_models_are_loaded_and_unloaded_on_demand(repository: Path, log_file: Path) -> None:
    explicit = ("--model-control", "explicit")
    with served(repository, log_file, *explicit) as server:
        with (
            triton_grpc.InferenceServerClient(server.grpc) as by_grpc,
            triton_http.InferenceServerClient(server.http) as by_http,
        ):
            for client, other in ((by_grpc, by_http), (by_http, by_grpc)):
                assert not client.is_model_ready("linear")
                client.load_model("linear")
                assert other.is_model_ready("linear")
                assert ask_grpc(server).shape == (1, 3)
                client.unload_model("linear")
                assert not other.is_model_ready("linear")
            for client, status in ((by_grpc, "StatusCode.UNIMPLEMENTED"), (by_http, "501")):
                with pytest.raises(InferenceServerException, match="load parameters are not supported") as caught:
                    client.load_model("linear", config="{}")
                assert caught.value.status() == status
            write_model(repository, "broken", 1, b"not an ONNX file")
            for client, internal, invalid in (
                (by_grpc, "StatusCode.INTERNAL", "StatusCode.INVALID_ARGUMENT"),
                (by_http, "500", "400"),
            ):
                with pytest.raises(InferenceServerException) as caught:
                    client.load_model("unheard-of")
                assert caught.value.status() == internal
                assert caught.value.message() == "failed to load 'unheard-of', failed to poll from model repository"
                with pytest.raises(
                    InferenceServerException, match="load failed for model 'broken': version 1 is"
                ) as caught:
                    client.load_model("broken")
                assert caught.value.status() == invalid
        assert server.stop() == 0


def test_a_polled_repository_cannot_be_changed_by_clients(repository: Path, log_file: Path) -> None:
    with (
        served(repository, log_file) as server,
        triton_http.InferenceServerClient(server.http) as by_http,
        triton_grpc.InferenceServerClient(server.grpc) as by_grpc,
    ):
        for client, status in ((by_http, "503"), (by_grpc, "StatusCode.UNAVAILABLE")):
            for change in (client.load_model, client.unload_model):
                with pytest.raises(InferenceServerException) as caught:
                    change("linear")
                assert caught.value.status() == status
                assert caught.value.message().startswith("explicit model load / unload is not allowed")
            assert client.is_model_ready("linear")


def test_a_version_that_appears_is_served(repository: Path, log_file: Path) -> None:
    with served(repository, log_file, "--poll-seconds", "0.05") as server:
        write_model(repository, "linear", 2, linear(seed=2))
        with triton_http.InferenceServerClient(server.http) as client:
            while client.get_model_metadata("linear")["versions"] != ["2"]:  # otherwise the test times out
                threading.Event().wait(0.01)
        sentences = [line.split("INFO ")[1] for line in server.log.splitlines()]
        assert sentences == [f"model linear version {what}" for what in ("1 is loaded", "2 is loaded", "1 is unloaded")]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A key and a self-signed certificate as PEM files."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    write_certificate(key, certificate)
    return key, certificate


def test_both_protocols_are_served_with_tls(repository: Path, log_file: Path, certificate: tuple[Path, Path]) -> None:
    key, trusted = certificate
    with served(repository, log_file, "--tls-key", str(key), "--tls-certificate", str(trusted)) as server:
        inputs = batch_of(2)
        grpc_address, http_address = (each.replace("127.0.0.1", "localhost") for each in (server.grpc, server.http))
        with triton_grpc.InferenceServerClient(grpc_address, ssl=True, root_certificates=str(trusted)) as client:
            asked = triton_grpc.InferInput("inputs", [2, 4], "FP32").set_data_from_numpy(inputs)
            by_grpc = client.infer("linear", [asked]).as_numpy("probabilities")
        context = ssl.create_default_context(cafile=trusted)
        with triton_http.InferenceServerClient(http_address, ssl=True, ssl_context_factory=lambda: context) as client:
            again = triton_http.InferInput("inputs", [2, 4], "FP32").set_data_from_numpy(inputs)
            assert client.infer("linear", [again]).as_numpy("probabilities").tobytes() == by_grpc.tobytes()
        with pytest.raises(ConnectionError):
            get(server.http, "/v2")  # in plaintext
        metrics = server.ports["metrics_port"]
        with closing(HTTPSConnection("localhost", metrics, timeout=60, context=context)) as connection:
            connection.request("GET", "/metrics")
            assert b"nv_inference_request_success" in connection.getresponse().read()
        assert server.stop() == 0


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *options], capture_output=True, text=True, env=ENVIRONMENT, check=False)


def test_startup_errors_are_one_sentence(
    repository: Path, log_file: Path, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    def rejected(*options: str, path: Path = repository) -> str:
        ended = run(str(path), *FREE_PORTS, *options)
        assert (ended.returncode != 0, ended.stdout) == (True, "")
        assert ended.stderr.count("\n") == 1, ended.stderr
        return ended.stderr

    keys = str(tmp_path / "keys")
    create_key(Path(keys), "alice", admin=False)
    assert "is not a directory" in rejected(path=tmp_path / "nothing")
    assert "model-control is 'x'; it must be one of poll, explicit" in rejected("--model-control", "x")
    assert "provider is 'tpu'; it must be one of cpu, cuda, tensorrt" in rejected("--provider", "tpu")
    assert "max-request-size is 'big'" in rejected("--max-request-size", "big")
    assert "tls_key and tls_certificate must be given together" in rejected("--tls-key", str(certificate[0]))
    pair = ("--tls-key", str(certificate[1]), "--tls-certificate", str(certificate[1]))
    assert "must be a PEM key without a password and its certificate" in rejected(*pair)
    missing = ("--tls-key", str(tmp_path / "no.pem"), "--tls-certificate", str(certificate[1]))
    assert f"tls_key is '{tmp_path / 'no.pem'}'; there is no such file" in rejected(*missing)
    assert "grpc_port is 70000" in rejected("--grpc-port", "70000")
    assert "are 9, 9 and 0; they must be three different ports" in rejected("--grpc-port", "9", "--http-port", "9")
    assert "cannot listen on 192.0.2.1:0: Cannot assign requested address" in rejected(
        "--host", "192.0.2.1", "--api-key-file", keys
    )
    with served(repository, log_file) as server:
        for protocol in ("grpc", "http", "metrics"):
            taken = str(server.ports[f"{protocol}_port"])
            assert f"cannot listen on 127.0.0.1:{taken}" in rejected(f"--{protocol}-port", taken)


@pytest.mark.parametrize(("provider", "name"), [("cuda", "CUDA"), ("tensorrt", "Tensorrt")])
def test_a_provider_that_does_not_work_here_ends_the_server(repository: Path, provider: str, name: str) -> None:
    if starts(f"{name}ExecutionProvider"):
        pytest.skip(f"{provider} works here")
    ended = run(str(repository), *FREE_PORTS, "--provider", provider)
    assert (ended.returncode, ended.stdout) == (10, "")
    last = ended.stderr.splitlines()[-1]  # ONNX Runtime has its say before
    assert last.startswith(
        (f"moonfed-export: provider is {provider}; this", f"moonfed-export: provider is {provider}, which")
    )


@pytest.mark.parametrize("mistaken", ["", "linear"])
def test_a_server_without_models_warns_about_the_expected_layout(
    repository: Path, log_file: Path, mistaken: str
) -> None:
    path = repository / mistaken if mistaken else repository / "linear" / "1" / "none"
    path.mkdir(exist_ok=True)
    with served(path, log_file) as server:
        assert f"{path} has no model that can be served; it must contain NAME/VERSION/model.onnx" in server.log


def test_the_server_imports_no_training_code() -> None:
    program = (
        "import sys, moonfed.cli.program, moonfed.cli.serve, moonfed.serving.server\n"
        "print(sorted({'torch', 'onnx', 'moonfed.coordinator', "
        " 'moonfed.edge_client', 'torchvision'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_can_send_a_large_body_after_expect_continue(repository: Path, log_file: Path) -> None:
    with served(repository, log_file, "--max-request-size", "1MB") as server:
        command = ["curl", "--silent", "--write-out", " %{http_code}", "--data-binary", "@-"]
        found = [
            subprocess.run(
                [*command, *extra, f"http://{server.http}{LINEAR}/infer"],
                input=json.dumps(json_request(40_000)).encode(),
                capture_output=True,
                check=True,
            ).stdout.decode()
            for extra in ([], ["--header", "Expect: 100-continue"])
        ]
    assert [each.split()[-1] for each in found] == ["413", "413"]
    assert all("at most 1000000 are accepted" in each for each in found)
