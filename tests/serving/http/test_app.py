"""The HTTP endpoints called as an ASGI application, without a socket; test_server.py has a real server."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from moonfed.serving.http.app import InferenceApp
from moonfed.serving.http.pacing import BodyPacer
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.requests.access import AccessControl
from moonfed.serving.requests.api_keys import ApiKeys
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from moonfed.version import RELEASE
from tests.support.model_repositories import batch_of, directly, linear

LIMIT = 2000  # bytes of a request
INFER = "/v2/models/linear/infer"
HEADER_LENGTH = "inference-header-content-length"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> str:
        return str(self.document["error"])


class Keys:
    def find(self, key: str) -> SimpleNamespace | None:
        return SimpleNamespace(name=key, is_admin=key == "admin") if key in ("user", "admin") else None


class Caller:
    """Calls an application that serves one model."""

    def __init__(self, models: ModelManager, pool: ElasticThreadPool, access: AccessControl) -> None:
        self.models, self.pool = models, pool
        self._application = InferenceApp(models, pool, LIMIT, access).application()
        self.parts_read = 0

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, [b""], headers)

    def post(self, path: str, body: object = b"", **headers: str) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, [content], {"content-length": str(len(content)), **headers})

    def call(self, method: str, path: str, parts: Sequence[bytes], headers: dict[str, str]) -> Answer:
        """Call with a body in parts; after the last one, the client disconnects."""
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        sent: list[dict[str, Any]] = []
        left = list(parts)

        async def receive() -> dict[str, Any]:
            if not left:
                return {"type": "http.disconnect"}
            self.parts_read += 1
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._application(scope, receive, send))
        fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], fields, b"".join(each.get("body", b"") for each in sent[1:]))


@pytest.fixture
def app(loaded: ModelManager, one_call: ElasticThreadPool) -> Caller:
    return Caller(loaded, one_call, AccessControl(None, local=True))


def request(**fields: object) -> dict[str, object]:
    tensor = {"name": "inputs", "datatype": "FP32", "shape": [2, 4], "data": batch_of(2).ravel().tolist()}
    return {"inputs": [tensor], **fields}


def test_an_inference_is_answered_as_json(app: Caller) -> None:
    found = app.post(INFER, request(id="7"))
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    (output,) = found.document["outputs"]
    (expected,) = directly(linear(), {"inputs": batch_of(2)})
    assert np.array_equal(np.array(output["data"], np.float32).reshape(2, 3), expected)
    assert (found.document["id"], found.document["model_version"]) == ("7", "1")
    assert app.post("/v2/models/linear/versions/1/infer", request()).status == 200


def test_binary_tensors_follow_the_json(app: Caller) -> None:
    tensor = {"name": "inputs", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    found = app.post(INFER, head + batch_of(2).tobytes(), **{HEADER_LENGTH: str(len(head))})
    assert (found.status, found.headers["content-type"]) == (200, "application/octet-stream")
    length = int(found.headers[HEADER_LENGTH])
    assert json.loads(found.content[:length])["model_name"] == "linear"
    assert found.content[length:] == directly(linear(), {"inputs": batch_of(2)})[0].tobytes()


@pytest.mark.parametrize("length", ["", "many", "1" * 30, "+1"])
def test_a_length_that_is_no_number_is_rejected(length: str, app: Caller) -> None:
    found = app.post(INFER, request(), **{HEADER_LENGTH: length})
    assert (found.status, "it must be a number of bytes" in found.error) == (400, True)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_are_compressed_both_ways(encoding: str, pack: Any, app: Caller) -> None:
    body = pack(json.dumps(request()).encode())
    found = app.post(INFER, body, content_encoding=encoding, accept_encoding=encoding)
    assert (found.status, found.headers["content-encoding"]) == (200, encoding)
    content = gzip.decompress(found.content) if encoding == "gzip" else zlib.decompress(found.content)
    assert json.loads(content)["outputs"]
    unknown = app.post(INFER, body, content_encoding="br")
    assert (unknown.status, unknown.error.startswith("Unsupported compression type 'br'")) == (501, True)


def test_a_body_beyond_the_limit_is_read_to_its_end_and_rejected(app: Caller) -> None:
    parts = [b"x" * 900] * 4
    found = app.call("POST", INFER, parts, {})
    assert (found.status, found.error) == (413, f"the request is 3600 bytes; at most {LIMIT} are accepted")
    assert app.parts_read == 4, "a client that is still writing reads no answer"
    declared = app.call("POST", INFER, [b"x"], {"content-length": "99999"})
    assert declared.error == f"the request is 99999 bytes; at most {LIMIT} are accepted"


def test_every_part_of_a_body_is_paced_also_beyond_the_limit(app: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    paced = list[tuple[int, int]]()

    async def wait(_: BodyPacer, part: int, body: int) -> None:
        paced.append((part, body))

    monkeypatch.setattr(BodyPacer, "wait", wait)
    app.call("POST", INFER, [b"x" * 900] * 3, {})
    assert paced[:3] == [(900, 900), (900, 1800), (900, 2700)]


def test_a_client_that_waits_for_permission_to_send_too_much_is_told_at_once(app: Caller) -> None:
    found = app.call("POST", INFER, [b"x"] * 3, {"content-length": "99999", "expect": "100-continue"})
    assert (found.status, app.parts_read) == (413, 0)


def test_a_client_that_disconnects_within_its_body_costs_nothing(app: Caller) -> None:
    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": INFER, "query_string": b"", "headers": []}
    asyncio.run(app._application(scope, receive, send))
    assert sent[0]["status"] == 200
    assert app.pool.in_flight == 0


def test_health_follows_the_server_and_the_models(app: Caller) -> None:
    paths = ("/v2/health/live", "/v2/health/ready", "/v2/models/linear/ready", "/v2/models/linear/versions/2/ready")
    assert [app.get(path).status for path in paths] == [200, 200, 200, 400]
    assert app.get("/v2/health/live").document == {"live": True}
    app.pool.stop_accepting()
    assert [app.get(path).status for path in paths] == [200, 400, 400, 400]
    assert app.get("/v2/health/ready").document == {"ready": False}
    assert app.post(INFER, request()).status == 503


def test_a_server_that_is_busy_rejects_a_further_request(app: Caller) -> None:
    with app.pool.count_call():
        found = app.post(INFER, request())
    assert (found.status, found.error.startswith("Server is busy with 1 inference requests")) == (503, True)


def test_the_server_and_its_models_are_described(app: Caller) -> None:
    assert app.get("/v2").document["version"] == RELEASE
    assert app.get("/v2/models/linear").document["inputs"] == [{"name": "inputs", "datatype": "FP32", "shape": [-1, 4]}]
    assert app.get("/v2/models/linear/config").document["max_batch_size"] == 8
    app.post(INFER, request())
    for path in ("/v2/models/stats", "/v2/models/linear/stats", "/v2/models/linear/versions/1/stats"):
        (counts,) = app.get(path).document["model_stats"]
        assert (counts["name"], counts["inference_count"]) == ("linear", 2)


def test_models_are_unloaded_loaded_and_listed(app: Caller) -> None:
    assert app.post("/v2/repository/models/linear/unload").status == 200
    assert [each["state"] for each in app.post("/v2/repository/index").document] == ["UNAVAILABLE"]
    assert app.post("/v2/repository/index", {"ready": True}).document == []
    assert app.post(INFER, request()).status == 404
    assert app.post("/v2/repository/models/linear/load").status == 200
    assert [each["state"] for each in app.post("/v2/repository/index", {"ready": True}).document] == ["READY"]
    parameters = app.post("/v2/repository/models/linear/load", {"parameters": {"config": "{}"}})
    assert (parameters.status, parameters.error.startswith("load parameters are not supported")) == (501, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v3", 404),
        ("GET", "/v2/", 404),
        ("POST", "/v2", 405),
        ("GET", INFER, 405),
        ("GET", "/v2/models/linear/versions/one", 404),
        ("GET", "/v2/models/linear/versions/" + "9" * 19, 404),
        ("GET", "/v2/models/unknown", 404),
        ("POST", "/v2/repository/models/unknown/load", 500),
        ("GET", "/v2/models/unknown/stats", 400),
        ("GET", "/v2/systemsharedmemory/status", 501),
        ("POST", "/v2/cudasharedmemory/region/a/register", 501),
        ("GET", "/v2/logging", 501),
        ("GET", "/v2/models/linear/trace/setting", 501),
        ("POST", "/v2/repository/other/index", 501),
    ],
)
def test_other_paths_have_their_status(method: str, path: str, status: int, app: Caller) -> None:
    found = app.call(method, path, [b""], {})
    assert (found.status, list(found.document)) == (status, ["error"])


def test_long_errors_are_cut_and_unexpected_ones_disclose_nothing(app: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(app.get("/v2/models/" + "x" * 9000).error) == 2000
    monkeypatch.setattr(app.models, "live", lambda: 1 / 0)
    found = app.get("/v2/health/live")
    assert (found.status, found.error) == (500, "internal error; the server's log has the details")


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("GET", "/v2/health/ready", (200, 200, 200)),
        ("GET", "/v2/models/linear", (401, 200, 200)),
        ("POST", "/v2/repository/index", (401, 200, 200)),
        ("GET", "/v2/logging", (401, 501, 501)),
        ("POST", "/v2/repository/models/linear/load", (401, 403, 200)),
    ],
)
def test_callers_need_the_key_of_their_role(
    method: str, path: str, statuses: tuple[int, ...], loaded: ModelManager, one_call: ElasticThreadPool
) -> None:
    app = Caller(loaded, one_call, AccessControl(cast(ApiKeys, Keys()), local=False))
    headers: list[dict[str, str]] = [{}, {"authorization": "Bearer user"}, {"authorization": "Bearer admin"}]
    found = [app.call(method, path, [b""], each) for each in headers]
    assert tuple(answer.status for answer in found) == statuses
    assert ("www-authenticate" in found[0].headers) == (statuses[0] == 401)
