"""One trace per round, over real programs, with the devices' spans; and their logs as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trace_collector import Received, children, running_collector, silent_collector

from .conftest import Federation

pytestmark = pytest.mark.slow

LOG = ("--log-format", "json")
COORDINATOR, CLIENT = "moonfed-coordinator", "moonfed-client"


def lines(federation: Federation, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in federation.log(name).splitlines()]


def only(spans: list[Received], name: str, **attributes: object) -> Received:
    (found,) = (one for one in spans if one.name == name and one.attributes.items() >= attributes.items())
    return found


def test_a_rounds_trace_has_the_spans_of_its_devices_and_a_lost_one(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    """cam-2's collector never answers, which delays no round; cam-3 is killed while it trains."""
    with running_collector() as collector, silent_collector() as silent:
        federation.serve("coordinator", "--otlp-endpoint", collector.address, *LOG)
        federation.enrol("cam-1", "cam-2", "cam-3")
        federation.start_device("cam-1", "--otlp-endpoint", collector.address, *LOG)
        federation.start_device("cam-2", "--otlp-endpoint", silent)
        federation.start_device_for(0, "cam-3", "--otlp-endpoint", collector.address)
        federation.until_online(3)
        options = ("--rounds", "1", "--minimum-devices", "3", "--cohort", "all", "--quorum", "2")
        federation.start_run(make_bundle("fedavg", epochs=1), "r", *options, "--heartbeat-timeout", "5")
        federation.until_log("cam-3", "round 1: assigned")
        federation.kill("cam-3")
        federation.until_finished("r")
        federation.fleet.stop_all()  # which exports the last spans
        spans = collector.until_named("round", "upload", "device round")

    root = only(spans, "round")
    assert root.attributes.items() >= {"run": "r", "round": 1, "attempt": 1, "outcome": "committed"}.items()
    assert {one.trace for one in spans} == {root.trace}
    assert {one.service for one in spans} == {COORDINATOR, CLIENT}
    assert {one.name for one in spans} == {
        "round", "waiting", "assignment", "reduction", "commit",
        "device round", "download", "train", "upload", "receive update",
    }  # fmt: skip
    within = children(spans, root)
    assert sorted(one.name for one in within) == ["assignment"] * 3 + ["commit", "reduction", "waiting"]
    assert all(root.began <= one.began <= one.ended <= root.ended for one in within)

    device = only(children(spans, only(within, "assignment", device="cam-1", outcome="accepted")), "device round")
    assert device.service == CLIENT
    assert device.attributes.items() >= {"device": "cam-1", "run": "r", "round": 1, "attempt": 1}.items()
    assert [one.name for one in sorted(children(spans, device), key=lambda one: one.began)] == [
        "download", "train", "upload",
    ]  # fmt: skip
    received = only(children(spans, only(spans, "upload")), "receive update", device="cam-1")
    assert (received.service, received.attributes["outcome"]) == (COORDINATOR, "accepted")

    assert only(within, "assignment", device="cam-2", outcome="accepted")
    assert only(spans, "receive update", device="cam-2").trace == root.trace
    assert "does not take spans" in federation.log("cam-2")

    lost = only(within, "assignment", device="cam-3", outcome="lost")
    assert (lost.failed, lost.events[-1]) == (True, "lost")
    assert not [one for one in children(spans, lost) if one.name == "device round"], "it was killed"

    logged = lines(federation, "coordinator")
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in logged)
    about = {"run": "r", "round": 1, "attempt": 1}
    (gone,) = (line for line in logged if str(line["message"]).endswith("cam-3 is lost"))
    assert gone.items() >= {**about, "device": "cam-3", "level": "warning"}.items()
    assert [line for line in logged if line.items() >= {**about, "device": "cam-1"}.items()]
    trained = [line for line in lines(federation, "cam-1") if "trained on" in str(line["message"])]
    assert [line.items() >= {**about, "device": "cam-1"}.items() for line in trained] == [True]
    assert [line for line in lines(federation, "cam-1") if line["message"] == "stopped"]
