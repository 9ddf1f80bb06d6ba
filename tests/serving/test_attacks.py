"""Attacks on a real server: their cost is bounded, and honest clients are still answered."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import ssl
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import grpc
import psutil
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.grpc import service_pb2

from benchmarks.load.attackers import is_closed
from tests.support.gates import until
from tests.support.http2_calls import INFER, PREFACE, RawCall, message_head
from tests.support.model_repositories import INPUT, ONE_INSTANCE, OUTPUT, linear, write_model
from tests.support.server_certificates import write_certificate
from tests.support.server_process import Server, answer_of, get, limited, served, waits_for

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]
PATH = "/v2/models/linear/infer"
HONEST = {"inputs": [{"name": "inputs", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
MB = 1 << 20
ROWS = 400_000  # of a batch whose answer has 4.8 MB


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    write_model(path, "linear", 1, linear())
    return path


@pytest.fixture
def large_answers(tmp_path: Path) -> Path:
    """A repository whose model takes large batches."""
    config = f"max_batch_size: {ROWS} {INPUT}{OUTPUT}{ONE_INSTANCE}"
    write_model(tmp_path / "models", "linear", 1, linear(), config)
    return tmp_path / "models"


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(repository, tmp_path_factory.mktemp("server") / "log") as running:
        require_honest_answers(running)
        yield running


def require_honest_answers(server: Server) -> None:
    """Require an answer on both protocols."""
    status, answer = answer_of(server.http, PATH, HONEST)
    assert (status, answer["outputs"][0]["shape"]) == (200, [1, 3])
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        assert client.is_server_live()
        assert client.is_model_ready("linear")


def connected(server: Server, content: bytes = b"") -> socket.socket:
    host, port = server.http.split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(content)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Return everything that a server sends before it closes the connection."""
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionResetError:
        pass
    return received


def head(length: int, *more: str) -> bytes:
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: x", f"Content-Length: {length}", *more, "", ""]).encode()


def bomb(values: bytes, count: int) -> bytes:
    tensor = b'{"inputs": [{"name": "inputs", "datatype": "FP32", "shape": [1, 4], "data": [' + values * count
    return tensor.rstrip(b",") + b"]}]}"


@pytest.mark.parametrize("values", [b"[],", b"0,", b'"",', b"{},"])
def test_a_small_body_that_expands_to_megabytes_of_json_is_not_parsed(server: Server, values: bytes) -> None:
    before = server.reset_peak_memory()
    packed = gzip.compress(bomb(values, 60 * MB // len(values)), 9)
    assert len(packed) < 70_000
    for _ in range(3):
        status, content = get(server.http, PATH, packed, **{"Content-Encoding": "gzip"})
        assert (status, b"the decompressed body exceeds" in content) == (413, True)
    assert server.memory("VmHWM") - before < 60 * MB
    require_honest_answers(server)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (bomb(b"[],", 5 * MB), 413, "has more than 1048576 arrays and objects"),
        (bomb(b"{},", 5 * MB), 413, "has more than 1048576 arrays and objects"),
        (bomb(b"0,", 9 * MB), 413, "the JSON is 18874"),
        (b"[" * 100_000, 400, "it is nested too deeply"),
        (bomb(b"[" * 40 + b"1" + b"]" * 40 + b",", 4), 400, "nested at most 32 deep"),
        (bomb(b"9" * 5000 + b",", 4), 400, "failed to parse the request JSON buffer"),
        (bomb(b"9" * 4000 + b",", 4), 400, "not of object"),
        (bomb(b"1.5," + b"9" * 400 + b",", 2), 400, "it must be an array of FP32"),
        (bomb(b'"' + b"x" * 200_000 + b'",' + b"1," * 100_000, 1), 400, "it must be an array of FP32, not of strings"),
        (bomb(b"{},", 4), 400, "it must be an array of FP32, not of objects"),
        (bomb(b"1,", 4).replace(b"FP32", b"x" * 100_000), 400, "invalid datatype for input inputs: 'xxx"),
        (bomb(b"1,", 4).replace(b'"FP32"', b'"\\ud800"'), 400, "'datatype': it contains a lone surrogate"),
        (bomb(b'"\\udfff",', 4).replace(b"FP32", b"BYTES"), 400, "'inputs': it contains a lone surrogate"),
        (bomb(b"", 0).replace(b"[1, 4]", b"[4294967296, 4294967296]"), 400, "Shape does not match true shape"),
        (bomb(b"", 0).replace(b"[1, 4]", b"[0, 4294967296, 4294967296]"), 400, "its lengths are too large"),
        (bomb(b"1,", 4).replace(b"[1, 4]", b"[" + b"1, " * 99 + b"4]"), 400, "has 100 dimensions"),
        (bomb(b"1,", 4).replace(b"[1, 4]", b"[" + b"9" * 30 + b"]"), 400, "Unable to parse 'shape'"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_json_that_is_too_large_deep_or_odd_is_rejected(
    server: Server, body: bytes, status: int, sentence: str
) -> None:
    before = server.reset_peak_memory()
    found, content = get(server.http, PATH, body)
    assert (found, sentence in json.loads(content)["error"]) == (status, True), content[:300]
    assert len(content) < 5000, "whatever of the request it repeats"
    assert server.memory("VmHWM") - before < 100 * MB
    assert "Traceback" not in server.log
    require_honest_answers(server)


def test_a_number_of_5000_digits_in_a_header_or_a_path_is_rejected(server: Server) -> None:
    digits = "9" * 5000
    status, content = get(server.http, PATH, b"{}", **{"Inference-Header-Content-Length": digits})
    assert (status, b"it must be a number of bytes" in content) == (400, True)
    assert get(server.http, f"/v2/models/linear/versions/{digits}")[0] == 404
    with connected(server, head(0).replace(b"Length: 0", b"Length: " + digits.encode())) as connection:
        assert answer(connection).startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in server.log


def test_headers_are_bounded_in_bytes_and_in_number(server: Server) -> None:
    before = server.reset_peak_memory()
    for endless in (b"X: ", b"X" * 10 * MB, b"GET /" + b"a" * 10 * MB):
        start = b"" if endless.startswith(b"GET") else b"GET / HTTP/1.1\r\n"
        with connected(server, start) as connection:
            sent = 0
            try:
                while sent < 202 * MB:
                    connection.sendall(endless if sent == 0 else b"x" * MB)
                    sent += MB
            except (ConnectionResetError, BrokenPipeError):
                pass
            assert sent < 50 * MB
    many = b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 101 + b"\r\n"
    after_a_body = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"0\r\n" + b"X: 1\r\n" * 101
    for content in (many, b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", after_a_body + b"\r\n"):
        with connected(server, content) as connection:
            assert b"HTTP/1.1 431 " in answer(connection)
    assert server.memory("VmHWM") - before < 30 * MB
    require_honest_answers(server)


def test_requests_that_stop_arriving_are_closed(repository: Path, log_file: Path) -> None:
    limits = {"header_seconds": 0.5, "body_seconds": 0.5, "body_rate": 10_000_000}
    with limited(repository, log_file, limits=limits) as server, ExitStack() as stack:
        starts = [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", head(1000) + b"{"]
        connections = [stack.enter_context(connected(server, starts[n % 4])) for n in range(300)]
        expected = [b"", b"HTTP/1.1 408 ", b"HTTP/1.1 408 ", b"HTTP/1.1 408 "]
        for n, connection in enumerate(connections):
            assert answer(connection)[:13] == expected[n % 4]
        again = stack.enter_context(connected(server, b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"))
        until(lambda: b"live" in again.recv(1 << 16))
        again.sendall(b"GET /v2/h")  # the rest of the second one never comes
        assert answer(again).startswith(b"HTTP/1.1 408 ")
        require_honest_answers(server)


def test_a_slow_body_that_keeps_arriving_is_answered(repository: Path, log_file: Path) -> None:
    body = json.dumps(HONEST).encode()
    limits = {"header_seconds": 0.3, "body_seconds": 0.3, "body_rate": 10}
    with limited(repository, log_file, limits=limits) as server, connected(server, head(len(body))) as connection:
        for position in range(0, len(body), 20):
            connection.sendall(body[position : position + 20])
            time.sleep(0.1)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_large_response_that_is_not_read_is_dropped(large_answers: Path, log_file: Path) -> None:
    limits = {"response_seconds": 0.5, "body_rate": 100 * MB}
    data = b'{"inputs": [{"name": "inputs", "datatype": "FP32", "shape": [%d, 4], "data": [%s]}]}'
    request = data % (ROWS, b"1" + b",1" * (4 * ROWS - 1))
    with limited(large_answers, log_file, limits=limits) as server:
        with connected(server, head(len(request)) + request) as connection:
            port, process = connection.getsockname()[1], psutil.Process(server.process.pid)
            until(lambda: port in _peers(process))
            until(lambda: port not in _peers(process))  # without reading anything
            headers, _, received = answer(connection).partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", headers, re.IGNORECASE)
            assert length
            assert len(received) < int(length[1]), "the rest was dropped"
        require_honest_answers(server)


def unread_call(server: Server, method: str) -> RawCall:
    """Ask for a large answer, and leave no room for it in the call's window."""
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name="inputs", datatype="FP32", shape=[ROWS, 4])
    request = service_pb2.ModelInferRequest(
        model_name="linear", inputs=[tensor], raw_input_contents=[bytes(16 * ROWS)]
    ).SerializeToString()
    call = RawCall(server.ports["grpc_port"], method)
    call.send(message_head(len(request)) + request)
    return call


@pytest.mark.parametrize("method", [INFER, INFER.replace("ModelInfer", "ModelStreamInfer")])
def test_a_large_grpc_answer_that_is_not_read_is_dropped(large_answers: Path, log_file: Path, method: str) -> None:
    limits = {"response_seconds": 0.5, "body_rate": 100 * MB}
    with limited(large_answers, log_file, limits=limits) as server, unread_call(server, method) as call:
        until(lambda: call.await_reset(0.05))
        assert b"grpc-status\x011" in call.content  # CANCELLED
        require_honest_answers(server)


def test_grpc_answers_that_are_not_read_are_bounded_together(large_answers: Path, log_file: Path) -> None:
    limits = {"response_seconds": 3600.0, "pending_bytes": 30 * MB}
    with limited(large_answers, log_file, limits=limits) as server, ExitStack() as stack:
        calls = [stack.enter_context(unread_call(server, INFER)) for _ in range(16)]
        until(lambda: sum(call.await_reset(0.05) for call in calls) >= 10)
        require_honest_answers(server)


def _peers(process: psutil.Process) -> set[int]:
    """Return the ports of the peers of a process's connections."""
    return {each.raddr.port for each in process.net_connections() if each.raddr}


def test_unfinished_bodies_are_bounded_together(repository: Path, log_file: Path) -> None:
    with limited(repository, log_file, limits={"pending_bytes": 100 * MB}) as server, ExitStack() as stack:
        require_honest_answers(server)
        before = server.reset_peak_memory()

        def attack(_: int) -> socket.socket:
            connection = connected(server, head(61 * MB))
            try:
                for _ in range(60):
                    connection.sendall(bytes(MB))
            except (ConnectionResetError, BrokenPipeError):
                pass
            return connection

        with ThreadPoolExecutor(4) as pool:
            attacks = pool.map(attack, range(20))
            for _ in range(5):
                require_honest_answers(server)
            for connection in attacks:
                stack.enter_context(connection)
        assert server.memory() - before < 250 * MB
        require_honest_answers(server)


LARGE = os.urandom(20 * MB)
NO_HTTP = b"\0\1 no HTTP\r\n\r\n"
CHUNKED = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"%x\r\n" % len(LARGE) + LARGE


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (head(len(LARGE)) + LARGE + NO_HTTP, 400),
        (head(len(LARGE)) + LARGE + b"GET /v2 HTTP/1.1\r\nHost", None),
        (head(len(LARGE)) + LARGE + b"GET /v2 HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n" + head(len(LARGE)) + LARGE + NO_HTTP, 200),
        (CHUNKED + b"\r\n0\r\n\r\n" + NO_HTTP, 400),
        (head(len(packed := gzip.compress(LARGE, 1)), "Content-Encoding: gzip") + packed + NO_HTTP, 400),
        (head(len(LARGE)) + LARGE, None),
    ],
    ids=["no HTTP", "half a request", "bad header", "after another", "chunked", "gzip", "disconnected"],
)
def test_bodies_of_requests_that_fail_are_not_kept(
    repository: Path, log_file: Path, content: bytes, status: int | None
) -> None:
    with limited(repository, log_file) as server:
        require_honest_answers(server)
        before = server.reset_peak_memory()
        for _ in range(10):
            with connected(server, content) as connection:
                if status:
                    assert answer(connection).startswith(b"HTTP/1.1 %d " % status)
        require_honest_answers(server)
        assert server.memory("VmHWM") - before < 120 * MB
        assert "Traceback" not in server.log


def test_bodies_that_wait_for_a_model_count_after_their_clients_have_left(tmp_path: Path, log_file: Path) -> None:
    rows = 1_000_000
    waiting = waits_for(100 * rows).replace("max_batch_size: 64", f"max_batch_size: {100 * rows}")
    write_model(tmp_path / "models", "linear", 1, linear(), waiting + INPUT + OUTPUT)
    tensor = {"name": "inputs", "datatype": "FP32", "shape": [rows, 4], "parameters": {"binary_data_size": 16 * rows}}
    described = json.dumps({"inputs": [tensor]}).encode()
    start = head(len(described) + 16 * rows, f"Inference-Header-Content-Length: {len(described)}") + described
    with limited(tmp_path / "models", log_file, limits={"pending_bytes": 64 * MB}) as server:
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(connected(server, start + bytes(16 * rows)))
            until(lambda: server.waiting("linear") == 4)
        for _ in range(3):
            with connected(server, start) as connection, suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(bytes(16 * rows))
                assert answer(connection).startswith(b"HTTP/1.1 503 ")
        assert server.waiting("linear") == 4
        assert get(server.http, "/v2/health/live")[0] == 200


def test_connections_beyond_the_limit_replace_those_that_wait(repository: Path, log_file: Path) -> None:
    with limited(repository, log_file, limits={"connections": 10}) as server, ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(30)]
        for _ in range(5):
            require_honest_answers(server)
        assert answer(silent[0]).startswith(b"HTTP/1.1 503 ")


def test_grpc_connections_beyond_the_limit_are_rejected(repository: Path, log_file: Path) -> None:
    with limited(repository, log_file, limits={"connections": 10}) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.ports["grpc_port"])
        silent = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(30)]
        assert answer(silent[-1]) == b""
        silent[0].setblocking(False)
        assert not is_closed(silent[0]), "which came before the limit, and may still begin"


def test_connections_leave_files_for_everything_else(repository: Path, log_file: Path) -> None:
    settings = {"open_files": 300, "limits": {"header_seconds": 60.0}}
    with limited(repository, log_file, **settings) as server, ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(300)]
        for _ in range(5):
            require_honest_answers(server)
        assert answer(silent[0]).startswith(b"HTTP/1.1 503 ")
        address = ("127.0.0.1", server.ports["grpc_port"])
        silent = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(300)]
        assert answer(silent[-1]) == b""
        status, content = answer_of(server.http, PATH, HONEST)
        assert (status, content["outputs"][0]["shape"]) == (200, [1, 3])
    assert "Too many open files" not in server.log


def test_grpc_connections_without_a_call_are_closed(repository: Path, log_file: Path) -> None:
    seen: list[grpc.ChannelConnectivity] = []
    with (
        limited(repository, log_file, limits={"header_seconds": 0.5, "idle_seconds": 0.5}) as server,
        socket.create_connection(("127.0.0.1", server.ports["grpc_port"]), timeout=60) as silent,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        channel.subscribe(seen.append, try_to_connect=True)
        until(lambda: grpc.ChannelConnectivity.READY in seen and seen[-1] == grpc.ChannelConnectivity.IDLE)
        answer(silent)  # ends, since it says nothing


def test_a_grpc_connection_that_does_not_acknowledge_settings_is_closed(repository: Path, log_file: Path) -> None:
    limits = {"header_seconds": 0.5, "idle_seconds": 600.0}
    with (
        limited(repository, log_file, limits=limits) as server,
        socket.create_connection(("127.0.0.1", server.ports["grpc_port"]), timeout=30) as half_open,
    ):
        half_open.sendall(PREFACE)
        answer(half_open)  # ends, within half of gRPC's own deadline


def test_requests_that_follow_each_other_are_bounded(server: Server) -> None:
    with connected(server, b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n" * 5000) as connection:
        assert b"HTTP/1.1 429 " in answer(connection)
    require_honest_answers(server)


def test_a_handshake_that_stops_is_closed(repository: Path, log_file: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    write_certificate(key, certificate)
    settings = {"tls_key": str(key), "tls_certificate": str(certificate), "limits": {"header_seconds": 0.5}}
    with limited(repository, log_file, **settings) as server, ExitStack() as stack:
        addresses = [("127.0.0.1", port) for port in server.ports.values()]
        for connection in [stack.enter_context(socket.create_connection(found, timeout=30)) for found in addresses]:
            assert connection.recv(1) == b"", "within half of asyncio's own deadline"
        context = ssl.create_default_context(cafile=certificate)
        port = server.ports["http_port"]
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as secure:
            secure.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secure.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_unfinished_messages_are_bounded_together(repository: Path, log_file: Path) -> None:
    with limited(repository, log_file, limits={"pending_bytes": 100 * MB}) as server, ExitStack() as stack:
        require_honest_answers(server)
        before = server.reset_peak_memory()

        def attack(_: int) -> RawCall:
            call = RawCall(server.ports["grpc_port"], INFER)
            call.send(message_head(60 * MB) + bytes(50 * MB))
            return call

        with ThreadPoolExecutor(4) as pool:
            attacks = pool.map(attack, range(12))
            for _ in range(5):
                require_honest_answers(server)
            calls = [stack.enter_context(call) for call in attacks]
        until(lambda: sum(call.await_end(0.05) for call in calls) >= 8)
        assert server.memory("VmHWM") - before < 400 * MB
        require_honest_answers(server)


def test_messages_that_do_not_arrive_are_cancelled(repository: Path, log_file: Path) -> None:
    with limited(repository, log_file, limits={"message_seconds": 0.5}) as server, ExitStack() as stack:
        port = server.ports["grpc_port"]
        methods = [INFER, INFER.replace("ModelInfer", "ServerLive"), INFER.replace("ModelInfer", "ModelMetadata")]
        methods += ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"]
        calls = [stack.enter_context(RawCall(port, method)) for method in methods for _ in range(20)]
        for call in calls[::2]:
            call.send(message_head(100) + b"\n")
        require_honest_answers(server)
        assert all(call.await_end() for call in calls)
        require_honest_answers(server)


def test_a_compressed_message_that_expands_is_rejected(server: Server) -> None:
    before = server.reset_peak_memory()
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(bytes(500 * MB)) + packer.flush()
    with RawCall(server.ports["grpc_port"], INFER, grpc_encoding="gzip") as call:
        call.send(message_head(len(packed), compressed=True) + packed, end=True)
        assert call.await_end()
        assert b"grpc-status\x018" in call.content  # RESOURCE_EXHAUSTED
    assert server.memory("VmHWM") - before < 150 * MB
    require_honest_answers(server)


def test_metadata_of_a_call_are_bounded(server: Server) -> None:
    with triton_grpc.InferenceServerClient(server.grpc) as client, pytest.raises(Exception, match="metadata"):
        client.is_server_live(headers={"x": "y" * 100_000})
    require_honest_answers(server)


def test_an_endless_body_is_cut_off(repository: Path, log_file: Path) -> None:
    with (
        limited(repository, log_file, max_request_bytes=10_000) as server,
        closing(HTTPConnection(server.http, timeout=60)) as connection,
    ):
        with pytest.raises((ConnectionError, BrokenPipeError)):
            connection.request("POST", PATH, iter([bytes(MB)] * 200), encode_chunked=True)
        require_honest_answers(server)
