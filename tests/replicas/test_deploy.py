"""The configuration that docs/scaling.md recommends: HAProxy reads it, and its ports are the coordinators' own."""

from __future__ import annotations

import re
import subprocess

import pytest
import typer.main

from moonfed.coordinator.cli.program import app
from tests.replicas.balancer import CONFIGURATION, HAPROXY

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not HAPROXY, reason="there is no HAProxy: apt-get install haproxy")
def test_haproxy_reads_it_without_a_warning() -> None:
    assert HAPROXY
    checked = subprocess.run([HAPROXY, "-c", "-f", str(CONFIGURATION)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr


def test_it_passes_tcp_through_on_the_coordinators_own_ports() -> None:
    text = CONFIGURATION.read_text()
    assert "mode tcp" in text
    assert " ssl" not in text
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    defaults = {parameter.name: parameter.default for parameter in command.params}
    for name, port in (("fleet", defaults["fleet_port"]), ("enrolment", defaults["enrolment_port"])):
        (section,) = re.findall(rf"^listen {name}\b.*?(?=^listen|\Z)", text, re.MULTILINE | re.DOTALL)
        assert set(re.findall(r":(\d+)", section)) == {str(port)}
