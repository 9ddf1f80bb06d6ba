"""A real Prometheus (Debian's package) that scrapes what tests serve, asked through its HTTP API."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES, RULE_TESTS = (DEPLOY / "prometheus" / name for name in ("moonfed.rules.yml", "moonfed.rules.test.yml"))
WAIT = 100.0  # seconds after which a test gives up; nothing is asserted about time
INTERVAL = "1s"  # also the limit for a scrape, on a machine that may be busy
ROW = re.compile(r"^\| `(moonfed_\w+)` \| (\w+) \| (.+?) \| .+ \|$", re.MULTILINE)
DEVICE = "moonfed_device_"
Families = Mapping[str, tuple[str, tuple[str, ...]]]  # type and labels by name


def require_programs() -> None:
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install prometheus")


def promtool(*words: str) -> str:
    command = [shutil.which("promtool") or "promtool", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DEPLOY / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scrape(port: int) -> str:
    """Return what a metrics port exports, as text."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        return str(reply.read().decode())


def value(port: int, name: str, **labels: str) -> float:
    """Return the present value of one of moonfed's metrics."""
    families = text_string_to_metric_families(scrape(port))
    samples = {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}
    return samples[f"moonfed_{name}", frozenset(labels.items())]


def documented(*, of_devices: bool) -> Families:
    """Return the metrics in the tables of docs/monitoring.md."""
    return {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall((DEPLOY.parent / "docs" / "monitoring.md").read_text())
        if name.startswith(DEVICE) == of_devices
    }


def exposed(text: str) -> Families:
    """Return moonfed's metrics in an exposition."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("moonfed_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[family.name + "_total" * (family.type == "counter")] = (family.type, tuple(sorted(labels)))
    return found


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of a reply of the API; fails with the server's explanation."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=WAIT) as reply:  # noqa: S310 - our own address
                return json.loads(reply.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def values(self, expression: str) -> list[float]:
        """Return an expression's values that are numbers."""
        found = [float(sample["value"][1]) for sample in self.ask("query", query=expression)["result"]]
        return [value for value in found if not math.isnan(value)]

    def has_data(self, expression: str) -> None:
        """Wait until an expression has a value."""
        end = time.monotonic() + WAIT
        while not self.values(expression):
            assert time.monotonic() < end, f"there are no data for {expression}"
            time.sleep(0.2)

    def fires(self, alert: str) -> Mapping[str, str]:
        """Wait until an alert fires; return its labels."""
        end = time.monotonic() + WAIT
        while True:
            for found in self.ask("alerts")["alerts"]:
                if found["labels"]["alertname"] == alert and found["state"] == "firing":
                    return dict(found["labels"])
            assert time.monotonic() < end, f"{alert} did not fire"
            time.sleep(0.2)


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """Scrape these local ports, by job, with the shipped rules but without their delays, until the context ends."""
    directory.mkdir()
    (directory / "rules.yml").write_text(re.sub(r"\bfor: \w+", "for: 0s", RULES.read_text()))
    jobs = [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in targets.items()]
    often = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
    document = {"global": often, "rule_files": ["rules.yml"], "scrape_configs": jobs}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(document))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["prometheus", f"--config.file={directory / 'prometheus.yml'}", f"--web.listen-address=127.0.0.1:{port}"]
    command += [f"--storage.tsdb.path={directory / 'data'}", "--log.level=warn"]
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_until_ready(process, port, directory / "log")
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + WAIT
    while True:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=WAIT):
                return
        except OSError:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
