"""The console as a process."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.console import synthetic_control
from benchmarks.load.synthetic_control import DEVICES, ROUNDS, RUN
from tests.coordinator.console.conftest import Federation
from tests.support.console_process import ConsoleProcess, console_process, log_in
from tests.support.coordinator_programs import PROGRAM, _environment

pytestmark = pytest.mark.slow


def test_a_console_stops_on_a_signal_and_a_taken_port_is_one_sentence(federation: Federation) -> None:
    with console_process("--identity", str(federation.identity)) as console:
        port = console.address.rpartition(":")[2]
        second = subprocess.run(
            [*PROGRAM, "console", "--identity", str(federation.identity), "--port", port],
            capture_output=True,
            text=True,
            env=_environment(),
            check=False,
        )
        assert second.returncode == 4
        assert second.stderr.startswith(f"moonfed-coordinator: the console cannot listen on 127.0.0.1:{port}: ")
        with log_in(console, console.token).client.stream("GET", "/api/runs/pilot/live"):
            console.process.send_signal(signal.SIGTERM)
            assert console.process.wait(timeout=60) in (0, -signal.SIGTERM)


def test_enter_prints_another_link(federation: Federation) -> None:
    terminal, its = pty.openpty()
    command = [*PROGRAM, "console", "--identity", str(federation.identity), "--port", "0"]
    process = subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, text=True, env=_environment())
    try:
        assert process.stdout
        first = process.stdout.readline()
        assert first.startswith(
            "open the console with this link, which works once (press Enter for another): http://127.0.0.1:"
        )
        os.write(terminal, b"\n")
        second = process.stdout.readline()
        links = [line.split()[-1] for line in (first, second)]
        assert len({link.partition("#")[2] for link in links}) == 2
        for link in links:
            address, _, token = link.partition("/login#")
            console = ConsoleProcess(process, address, link)
            log_in(console, token)
            console.close()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
        os.close(terminal)
        os.close(its)


@pytest.mark.usefixtures("fresh_programs")
def test_a_large_fleet_leaves_the_console_small() -> None:
    with synthetic_control() as address, console_process("--insecure", "--coordinator", address) as console:
        page = log_in(console, console.token)
        for _ in range(2):
            assert len(page.rows(f"/api/runs/{RUN}/rounds")) == ROUNDS
            assert len(page.rows(f"/api/runs/{RUN}/outcomes", last="100")) == 100
            assert len(page.rows("/api/devices")) == DEVICES
            assert len(page.rows("/api/models/digits/devices")) == DEVICES
            assert len(page.rows("/api/devices/device-0001/history", last="500")) == 500
            assert len(page.rows("/api/audit", last="500")) == 500
        assert console.memory() < 80


def test_a_console_imports_nothing_large(tmp_path: Path) -> None:
    code = (
        "import moonfed.coordinator.console.server, sys; "
        "print([name for name in ('torch', 'numpy', 'sqlalchemy', 'onnx', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=_environment(), check=True)
    assert done.stdout == "[]\n"
