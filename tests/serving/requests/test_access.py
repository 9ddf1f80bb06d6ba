"""API keys and client certificates on real servers."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from moonfed.errors import Denied, InvalidInput, Untrusted
from moonfed.serving.requests.access import AccessControl
from moonfed.serving.requests.api_keys import ApiKeys, create_key
from moonfed.serving.server_settings import ServerSettings
from tests.support.gates import until
from tests.support.model_repositories import linear, write_model
from tests.support.server_certificates import write_authority, write_certificate
from tests.support.server_process import ENVIRONMENT, FREE_PORTS, PROGRAM, Server, get, served

pytestmark = pytest.mark.usefixtures("forked_programs")
PATH = "/v2/models/linear/infer"
BODY = json.dumps({"inputs": [{"name": "inputs", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
Client = Any  # tritonclient has no types
Headers = dict[str, Any]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path / "models", "linear", 1, linear())
    return tmp_path / "models"


class Keys:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "keys"
        self.user = create_key(self.path, "alice", admin=False)
        self.admin = create_key(self.path, "root", admin=True)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def server(repository: Path, tmp_path: Path, keys: Keys) -> Iterator[Server]:
    options = ("--api-key-file", str(keys.path), "--model-control", "explicit")
    with served(repository, tmp_path / "log", *options) as running:
        yield running


def bearer(key: str) -> Headers:
    return {"Authorization": f"Bearer {key}"}


def infer(client: Client, triton: Client, headers: dict[str, str]) -> None:
    asked = triton.InferInput("inputs", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
    assert client.infer("linear", [asked], headers=headers).as_numpy("probabilities").shape == (1, 3)


def test_every_call_but_health_checks_needs_a_key(server: Server, keys: Keys) -> None:
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert get(server.http, path)[0] == 200
    assert get(server.http, "/v2/repository/models/linear/load", b"", **bearer(keys.admin))[0] == 200
    paths = ["/v2", "/v2/models/stats", "/v2/models/linear", "/v2/models/linear/ready", "/v2/models/linear/config"]
    paths += ["/v2/logging", "/v2/systemsharedmemory/status"]
    wrongs: list[Headers] = [{}, bearer("moonfed_wrong"), bearer(""), {"Authorization": keys.user}]
    wrongs += [{"Authorization": f"Digest {keys.user}"}]
    for wrong in [*wrongs, {"Authorization": "Bearer"}]:
        for path in paths:
            assert get(server.http, path, **wrong)[0] == 401
        for path in (PATH, "/v2/repository/index", "/v2/repository/models/linear/unload"):
            assert get(server.http, path, BODY, **wrong)[0] == 401
    assert get(server.http, PATH, BODY, **bearer(keys.user))[0] == 200
    assert get(server.http, PATH, BODY, Authorization=f"bearer  {keys.user} ")[0] == 200
    assert "rejected 1 calls without a valid API key" in server.log
    assert server.log.count("without a valid API key") == 1
    assert keys.user not in server.log


def test_grpc_needs_a_key_too(server: Server, keys: Keys) -> None:
    with triton_grpc.InferenceServerClient(server.grpc) as client, grpc.insecure_channel(server.grpc) as channel:
        assert client.is_server_live()
        assert client.is_server_ready()
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        admin, user = {"authorization": f"Bearer {keys.admin}"}, {"authorization": f"Bearer {keys.user}"}
        client.load_model("linear", headers=admin)
        infer(client, triton_grpc, user)
        for wrong in (None, {"authorization": "Bearer moonfed_wrong"}):
            for call in (
                lambda: infer(client, triton_grpc, wrong or {}),
                lambda: client.get_model_metadata("linear", headers=wrong),
                lambda: client.is_model_ready("linear", headers=wrong),
                lambda: client.unload_model("linear", headers=wrong),
            ):
                with pytest.raises(InferenceServerException) as caught:
                    call()
                assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        with pytest.raises(InferenceServerException, match="'alice' is a user's; this call needs an admin's") as caught:
            client.unload_model("linear", headers=user)
        assert caught.value.status() == "StatusCode.PERMISSION_DENIED"
        infer(client, triton_grpc, user)


def test_a_stream_needs_a_key(server: Server, keys: Keys) -> None:
    results: list[object] = []
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.load_model("linear", headers={"authorization": f"Bearer {keys.admin}"})
        asked = triton_grpc.InferInput("inputs", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
        client.start_stream(lambda result, error: results.append(error or result))
        until(lambda: bool(results))
        client.stop_stream()
        client.start_stream(
            lambda result, error: results.append(error or result), headers={"authorization": f"Bearer {keys.user}"}
        )
        client.async_stream_infer("linear", [asked])
        until(lambda: len(results) > 1)
    assert isinstance(results[0], InferenceServerException)
    assert not isinstance(results[1], InferenceServerException)


def test_only_an_admin_loads_models_and_reads_metrics(server: Server, keys: Keys) -> None:
    metrics = f"127.0.0.1:{server.ports['metrics_port']}"
    for path in ("/v2/repository/models/linear/load", "/v2/repository/models/linear/unload"):
        status, content = get(server.http, path, b"", **bearer(keys.user))
        assert (status, b"'alice' is a user's; this call needs an admin's" in content) == (403, True)
        assert get(server.http, path, b"", **bearer(keys.admin))[0] == 200
    callers: list[Headers] = [{}, bearer(keys.user), bearer(keys.admin)]
    assert [get(metrics, "/metrics", **each)[0] for each in callers] == [401, 403, 200]


def test_a_revoked_key_is_rejected_while_the_server_runs(server: Server, keys: Keys) -> None:
    assert get(server.http, "/v2", **bearer(keys.user))[0] == 200
    lines = keys.path.read_text().splitlines(keepends=True)
    keys.path.write_text("".join(line for line in lines if not line.startswith("alice ")))
    until(lambda: get(server.http, "/v2", **bearer(keys.user))[0] == 401)
    assert get(server.http, "/v2", **bearer(keys.admin))[0] == 200


def test_predict_and_triton_clients_send_keys(server: Server, keys: Keys) -> None:
    with triton_http.InferenceServerClient(server.http) as client:
        client.load_model("linear", headers=bearer(keys.admin))
        infer(client, triton_http, bearer(keys.user))


def test_clients_need_a_certificate_of_the_authority(repository: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    write_certificate(key, certificate)
    ca, client_key, client_certificate = write_authority(tmp_path / "clients")
    _, other_key, other_certificate = write_authority(tmp_path / "others")
    options = ["--tls-key", key, "--tls-certificate", certificate, "--tls-client-ca", ca]
    with served(repository, tmp_path / "log", *map(str, options)) as server:

        def status(port: str, path: str, *pair: Path) -> int:
            context = ssl.create_default_context(cafile=certificate)
            if pair:
                context.load_cert_chain(pair[0], pair[1])
            with closing(HTTPSConnection("localhost", server.ports[port], timeout=60, context=context)) as connection:
                connection.request("GET", path)
                return connection.getresponse().status

        for port, path in (("http_port", "/v2"), ("metrics_port", "/metrics")):
            assert status(port, path, client_certificate, client_key) == 200
            for pair in ((), (other_certificate, other_key)):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    status(port, path, *pair)
        address = server.grpc.replace("127.0.0.1", "localhost")
        trusted: dict[str, Any] = {"ssl": True, "root_certificates": str(certificate)}
        own = {"private_key": str(client_key), "certificate_chain": str(client_certificate)}
        with triton_grpc.InferenceServerClient(address, **trusted, **own) as client:
            infer(client, triton_grpc, {})
        with triton_grpc.InferenceServerClient(address, **trusted) as client:
            with pytest.raises(InferenceServerException) as caught:
                infer(client, triton_grpc, {})
            assert caught.value.status() == "StatusCode.UNAVAILABLE"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_server_that_others_can_reach_needs_authentication(host: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it must be combined with --api-key-file, with --tls-client-ca, or with bo"):
        ServerSettings(repository=tmp_path, host=host)
    assert not ServerSettings(repository=tmp_path, host=host, api_key_file=tmp_path / "keys").is_local


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_a_server_for_this_machine_needs_none(host: str, tmp_path: Path) -> None:
    assert ServerSettings(repository=tmp_path, host=host).is_local


def test_the_refusal_is_one_sentence(repository: Path) -> None:
    command = [*PROGRAM, str(repository), *FREE_PORTS, "--host", "0.0.0.0"]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("moonfed-export: host is '0.0.0.0', which other machines can reach; it must be")


def test_client_authorities_need_tls(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="tls_client_ca is given without tls_key"):
        ServerSettings(repository=tmp_path, tls_client_ca=tmp_path / "ca.pem")


def test_without_keys_only_local_callers_load_models(keys: Keys) -> None:
    local, remote = AccessControl(None, local=True), AccessControl(None, local=False)
    for access in (local, remote):
        access.require_user(None)
        access.require_scraper(None)
    local.require_admin(None)
    with pytest.raises(Denied, match="needs an admin's API key, but the server was started without --api-key-file"):
        remote.require_admin(None)
    keyed = AccessControl(ApiKeys(keys.path), local=True)
    keyed.require_admin(f"Bearer {keys.admin}")
    for check in (keyed.require_user, keyed.require_admin, keyed.require_scraper):
        with pytest.raises(Untrusted, match="an API key is needed, as the header"):
            check(None)
