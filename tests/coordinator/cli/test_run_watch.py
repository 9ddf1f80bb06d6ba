"""`run watch` on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.coordinator.cli.run_watch import show
from tests.coordinator.cli.test_watch import NAMES, in_round, run_of
from tests.support import coordinator
from tests.support.coordinator import model_bytes
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, Programs
from tests.support.operator_records import event

EVENTS = [
    event("snapshot", run=run_of()),
    in_round("round_opened", cohort=NAMES[:220]),
    *(in_round("update_received", device=device) for device in NAMES[:151]),
    in_round("progress", device=NAMES[151], fraction=0.25),
]
TERMINAL = """
import sys, time
from moonfed.coordinator.cli.run_watch import show
from tests.coordinator.cli.test_run_watch import EVENTS, NAMES
from tests.coordinator.cli.test_watch import in_round
def events():
    yield from EVENTS
    print("drawn", file=sys.stderr, flush=True)
    sys.stdin.readline()  # until the test has seen the bar
    yield in_round("round_committed", counted=NAMES[:200])
show(events(), terminal=True)
"""


def test_elsewhere_lines_begin_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    ended = show([*EVENTS, in_round("round_committed", counted=NAMES[:200])], terminal=False)
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)
    assert [line[21:] for line in lines] == [
        "run digits (moon): running, 2 of 50 rounds",
        "round 3 of 50: 200 of 200 updates in 0 s",
    ]
    assert ended == run_of()


def test_elsewhere_what_the_run_waits_for_is_one_whole_line(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = "waiting for " + ", ".join(NAMES[:8])
    show([event("snapshot", run=run_of(waiting=waiting))], terminal=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line[21:] for line in lines] == ["run digits (moon): running, 2 of 50 rounds", waiting]


def test_a_terminal_shows_all_that_the_run_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    waiting = "waiting for " + ", ".join(NAMES[:20])
    show([event("snapshot", run=run_of(waiting=waiting))], terminal=True)
    shown = [line[9:] for line in capsys.readouterr().out.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert max(map(len, shown)) <= 80 - 9
    assert " ".join(" ".join(shown[1:]).split()) == waiting


def test_a_terminal_shows_the_open_round_below_the_lines() -> None:
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", TERMINAL]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    root = Path(__file__).parents[3]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=theirs, env=environment, cwd=root) as process:
        os.close(theirs)
        shown = b""
        while b"slowest: " not in shown:
            shown += os.read(ours, 1 << 16)
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
        text = shown.decode()
        assert re.search(r"\d\d:\d\d:\d\d run digits \(moon\): running, 2 of 50 rounds", text)
        assert "━─" in text
        assert "151 of 200 updates" in text
        last = b""
        while piece := _read(ours):
            last += piece
        assert process.wait(timeout=60) == 0
    os.close(ours)
    shown_last = last.decode()
    assert re.search(r"\d\d:\d\d:\d\d round 3 of 50: 200 of 200 updates in \d+ s", shown_last)
    assert "\x1b[2K" in shown_last.rpartition("slowest")[2], "the bar is erased at the end"


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # Linux's way to say that nobody has the terminal open
        return b""


def test_watching_continues_across_a_restart(programs: Programs, until: Callable[[Callable[[], bool]], None]) -> None:
    programs.serve()
    device = programs.device("cam-1")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    programs.command("run", "start", str(bundle), "--name", "r", "--rounds", "1")
    words = [*PROGRAM, "run", "watch", "r", "--identity", str(programs.state / "operator")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as watching:
        try:
            assert watching.stdout
            assert "run r (fedavg): running, 0 of 1 round" in watching.stdout.readline()
            assert "waiting for 1 more device" in watching.stdout.readline()
            programs.signal(signal.SIGKILL)
            programs.serve()
            device = programs.device("cam-1")
            device.submit(device.connect().assignment(), model_bytes(1.0))
            assert "run r (fedavg): finished, 1 of 1 round" in watching.stdout.read()
            assert watching.wait(timeout=60) == 0
        finally:
            watching.kill()
