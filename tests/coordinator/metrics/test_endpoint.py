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
    with serving(registry, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        with pytest.raises(urllib.error.HTTPError, match="503") as failed:
            urllib.request.urlopen(url, timeout=60)
        failed.value.close()
        registry.unregister(failing)
        with urllib.request.urlopen(url, timeout=60) as reply:
            assert b"moonfed_example 0.0" in reply.read()
    assert [record.getMessage() for record in caplog.records] == [
        "a scrape of the metrics failed: the coordinator did not answer within 5 s"
    ]


def test_a_silent_client_delays_neither_others_nor_the_end() -> None:
    registry = CollectorRegistry()
    with (
        serving(registry, "127.0.0.1", 0) as port,
        socket.create_connection(("127.0.0.1", port)),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply,
    ):
        assert reply.status == 200
