"""`moonfed-export serve`: every option reaches its setting. Their effects are tested with real servers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
from moonfed.serving.models.manager import ServingSettings
from moonfed.serving.server import ServingPorts
from moonfed.serving.server_settings import ServerSettings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """The settings of the servers that commands would have started."""
    found: list[ServerSettings] = []

    def serve(settings: ServerSettings, ready: Callable[[ServingPorts], None]) -> None:
        found.append(settings)
        ready(ServingPorts(grpc=1, http=2, metrics=3))

    monkeypatch.setattr("moonfed.serving.server.serve", serve)
    return found


def test_the_defaults_are_the_documented_ones(started: list[ServerSettings]) -> None:
    shown = CliRunner().invoke(app, ["serve", "models"], catch_exceptions=False).output
    assert shown == "serving models on 127.0.0.1: gRPC 1, HTTP 2, metrics 3\n"
    assert started == [
        ServerSettings(
            repository=Path("models"),
            models=ServingSettings(provider="cpu", intra_op_threads=1, explicit=False, poll_seconds=5.0),
            host="127.0.0.1",
            grpc_port=8001,
            http_port=8000,
            metrics_port=8002,
            tls_key=None,
            tls_certificate=None,
            max_request_bytes=64_000_000,
            max_concurrent_requests=256,
            drain_seconds=30.0,
        )
    ]


def test_every_option_is_taken_over(started: list[ServerSettings]) -> None:
    words = shlex.split(
        "serve models --host ::1 --grpc-port 11 --http-port 12 --metrics-port 13 --tls-key k.pem "
        "--tls-certificate c.pem --tls-client-ca ca.pem --api-key-file keys --verify-key a.pub --verify-key b.pub "
        "--poll-seconds 0.5 --provider cuda --intra-op-threads 3 --max-request-size 2KB "
        "--max-concurrent-requests 7 --drain-seconds 9 --json"
    )
    shown = CliRunner().invoke(app, words, catch_exceptions=False).output
    assert shown == '{"grpc_port": 1, "http_port": 2, "metrics_port": 3}\n'
    assert started == [
        ServerSettings(
            repository=Path("models"),
            models=ServingSettings(
                provider="cuda",
                intra_op_threads=3,
                explicit=False,
                poll_seconds=0.5,
                verify_keys=(Path("a.pub"), Path("b.pub")),
            ),
            host="::1",
            grpc_port=11,
            http_port=12,
            metrics_port=13,
            tls_key=Path("k.pem"),
            tls_certificate=Path("c.pem"),
            tls_client_ca=Path("ca.pem"),
            api_key_file=Path("keys"),
            max_request_bytes=2000,
            max_concurrent_requests=7,
            drain_seconds=9.0,
        )
    ]


def test_explicit_control_polls_nothing(started: list[ServerSettings]) -> None:
    CliRunner().invoke(app, ["serve", "models", "--model-control", "explicit"], catch_exceptions=False)
    assert started[0].models == ServingSettings(explicit=True, poll_seconds=0.0)
