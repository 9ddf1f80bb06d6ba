"""A real Prometheus scrapes a federation of twenty devices: every panel of the dashboards has data, alerts fire."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from moonfed.edge_client.agent.device_metrics import DeviceMetrics
from moonfed.errors import MoonfedError
from moonfed.fleet.assignment import Assignment
from moonfed.transport import client as transport
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.faults.fleet import LightDevice, Pace, bundle_of, until
from tests.support import coordinator
from tests.support.coordinator import Device, ask, make_bundle
from tests.support.prometheus import (
    DEPLOY,
    RULE_TESTS,
    RULES,
    Prometheus,
    prometheus,
    promtool,
    require_programs,
    scrape,
)
from tests.support.sysfs import jetson

pytestmark = pytest.mark.slow

DEVICES, ROUND_SECONDS = 20, 0.5
RUN, REFUSED_RUN, REFUSING, REFUSING_INTERFACE = "secret-run", "refused-run", "refuser", "refusers/1"
REASON = "on holiday"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


@dataclass(frozen=True)
class Monitored:
    fleet: Fleet
    prometheus: Prometheus

    @property
    def metrics(self) -> str:
        return scrape(self.fleet.ports.metrics or 0)


class Leisurely(Pace):
    """Rounds that leave the processor to Prometheus, until all devices are to pause before their next upload."""

    def __init__(self) -> None:
        self.closing, self.delivering = threading.Event(), set[str]()

    def may_train(self, device: str, assignment: Assignment) -> bool:
        self.delivering.add(device)
        if self.closing.wait(ROUND_SECONDS):
            self.delivering.discard(device)
            return False
        return True

    def delivered(self, device: str, assignment: Assignment) -> None:
        self.delivering.discard(device)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """A run that goes on for as long as the tests need, and another one whose only device declines every round."""
    require_programs()
    tmp, pace = tmp_path_factory.mktemp("monitored"), Leisurely()
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_in(tmp, metrics_port=0, disk_budget=10**9))
        token = fleet.operator.token(uses=DEVICES + 1)
        for number in range(DEVICES):
            name = f"cam-{number:02}"
            identity = coordinator.enrol(tmp / name, token, name)
            device = LightDevice(tmp / name, name, 10, identity.address, pace)
            stack.callback(device.stop)
            device.start()
        fleet.start(RUN, 100_000, bundle_of(100), minimum_devices=DEVICES)
        stack.enter_context(_refusing(fleet, token))
        targets = {"moonfed-coordinator": fleet.ports.metrics or 0, "moonfed-devices": stack.enter_context(_board(tmp))}
        yield Monitored(fleet, stack.enter_context(prometheus(tmp / "prometheus", targets)))
        pace.closing.set()  # nothing may be under way when the coordinator stops: it would leave files open
        until(lambda: not pace.delivering)
        ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run=RUN))


@contextmanager
def _refusing(fleet: Fleet, token: str) -> Iterator[None]:
    """Keep a device online that declines its assignments, of a run that no other device is eligible for."""
    fleet.start(REFUSED_RUN, 1, make_bundle(interface=REFUSING_INTERFACE), max_attempts=1000)
    identity = coordinator.enrol(fleet.tmp / REFUSING, token, REFUSING)
    with transport.open_channel(identity.address, identity) as channel:
        device = Device(REFUSING, channel)
        session = device.connect(interface=REFUSING_INTERFACE)

        def refuse() -> None:
            with suppress(MoonfedError, ValueError):  # once the channel is closed
                while not isinstance(reply := session.replies.get(), MoonfedError):
                    work = reply.assignment
                    request = fleet_pb2.DeclineRequest(
                        device=REFUSING, run=work.run, round=work.round, attempt=work.attempt, reason=REASON
                    )
                    ask(device.fleet.Decline, request)

        threading.Thread(target=refuse, daemon=True).start()
        yield


@contextmanager
def _board(tmp: Path) -> Iterator[int]:
    """Serve the metrics file of a device with a Jetson's sensors, as node_exporter does."""
    directory = tmp / "textfile"
    directory.mkdir()
    metrics = DeviceMetrics(directory / "metrics", sysfs=jetson(tmp / "sys"))
    metrics.start(lambda: True)
    metrics.round_ended("counted", 3, 1.5, 0.25)
    metrics.round_ended("declined", 0, 0.0, None)
    metrics.write()
    handler = partial(_Textfile, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
    metrics.stop()


class _Textfile(SimpleHTTPRequestHandler):
    def guess_type(self, path: object) -> str:
        return "text/plain; version=0.0.4"

    def log_message(self, format: str, *args: object) -> None:
        pass


def expressions(dashboard: Path) -> list[tuple[str, str]]:
    """Return (panel, expression) with Grafana's variables filled in."""
    found = []
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "30s").replace("$job", ".*")
            assert "$" not in expression, expression
            found.append((panel["title"], expression))
    return found


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_shows_data(dashboard: Path, monitored: Monitored) -> None:
    for panel, expression in expressions(dashboard):
        assert panel
        monitored.prometheus.has_data(expression)


def test_the_fleet_is_counted(monitored: Monitored) -> None:
    for metric in ("devices_registered", "devices_online", "devices_eligible"):
        monitored.prometheus.has_data(f"moonfed_{metric} == {DEVICES + 1}")
    monitored.prometheus.has_data('moonfed_runs{role="driven"} == 2')
    accepted, committed = 'moonfed_updates_total{outcome="accepted"}', 'moonfed_rounds_total{outcome="committed"}'
    monitored.prometheus.has_data(f"{committed} > 0")
    monitored.prometheus.has_data(f"vector(scalar({accepted}) - {DEVICES} * scalar({committed})) >= 0")  # of one scrape


def test_an_alert_fires_once_a_round_is_abandoned_twice(monitored: Monitored) -> None:
    labels = monitored.prometheus.fires("MoonfedRoundAbandonedTwice")
    assert labels["severity"] == "warning"
    monitored.prometheus.has_data('moonfed_rounds_total{outcome="abandoned"} >= 2')
    monitored.prometheus.has_data('moonfed_updates_total{outcome="declined", reason="device"} >= 2')
    firing = {alert["labels"]["alertname"] for alert in monitored.prometheus.ask("alerts")["alerts"]}
    assert not firing & {
        "MoonfedRunFailed",
        "MoonfedReplicaLost",
        "MoonfedDiskBudgetNearlyUsed",
        "MoonfedCertificateExpires",
    }


def test_no_label_has_a_value_that_devices_or_runs_chose(monitored: Monitored) -> None:
    values = " ".join(re.findall(r'\w+="((?:[^"\\]|\\.)*)"', monitored.metrics))
    chosen = [RUN, REFUSED_RUN, REFUSING, REASON, *(f"cam-{number:02}" for number in range(DEVICES))]
    assert not [name for name in chosen if name in values]


def test_promtool_accepts_the_configuration_the_rules_and_their_tests() -> None:
    require_programs()
    assert "valid" in promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", RULES.name)
    assert "SUCCESS" in promtool("test", "rules", RULE_TESTS.name)


def test_every_alert_is_tested_and_documented() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    tests, page = RULE_TESTS.read_text(), (DEPLOY.parent / "docs" / "monitoring.md").read_text()
    for rule in rules:
        assert rule["alert"] in tests
        assert f"`{rule['alert']}`" in page
        assert {"summary", "description"} == set(rule["annotations"])
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_are_described_and_do_not_overlap(dashboard: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard.read_text())["panels"]:
        assert panel["title"]
        assert panel["description"]
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_dashboards_use_metrics_that_exist(monitored: Monitored) -> None:
    known = set(re.findall(r"^# TYPE (\w+)", monitored.metrics, re.MULTILINE))
    used = {name for file in DASHBOARDS for _, found in expressions(file) for name in re.findall(r"moonfed_\w+", found)}
    used |= set(re.findall(r"moonfed_\w+", " ".join(re.findall(r"expr: (.*)", RULES.read_text()))))
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used if not name.startswith("moonfed_device_")}
    assert used <= known


@pytest.mark.parametrize(
    "file", sorted((DEPLOY / "grafana" / "provisioning").rglob("*.yaml")), ids=lambda path: path.stem
)
def test_provisioning_files_are_valid(file: Path) -> None:
    assert yaml.safe_load(file.read_text())["apiVersion"] == 1
