from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from moonfed.coordinator.metrics.endpoint import serving
from moonfed.errors import Unavailable


class Failing(Collector):
    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        raise Unavailable("the coordinator did not answer within 5 s")


def test_a_failed_scrape_is_explained_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    registry, failing = CollectorRegistry(), Failing()
    Gauge("moonfed_example", "An example", registry=registry)
    registry.register(failing)
    with serving(registry, lambda: None, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        with pytest.raises(urllib.error.HTTPError, match="503") as failed:
            urllib.request.urlopen(url, timeout=60)
        failed.value.close()
        registry.unregister(failing)
        with urllib.request.urlopen(url, timeout=60) as reply:
            assert b"moonfed_example 0.0" in reply.read()
    assert [record.getMessage() for record in caplog.records] == [
        "a scrape or health check failed: the coordinator did not answer within 5 s"
    ]


def test_a_silent_client_delays_neither_others_nor_the_end() -> None:
    registry = CollectorRegistry()
    with (
        serving(registry, lambda: None, "127.0.0.1", 0) as port,
        socket.create_connection(("127.0.0.1", port)),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply,
    ):
        assert reply.status == 200


def test_health_is_that_of_the_program_and_not_of_the_storage() -> None:
    registry, works = CollectorRegistry(), [True]
    registry.register(Failing())

    def health() -> None:
        if not works[0]:
            raise Unavailable("the coordinator did not answer within 5 s")

    with serving(registry, health, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}/health"
        with urllib.request.urlopen(url, timeout=60) as reply:
            assert (reply.status, reply.read()) == (200, b"healthy\n")
        works[0] = False
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(url, timeout=60)
        failed.value.close()
        assert failed.value.code == 503
