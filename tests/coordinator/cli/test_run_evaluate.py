"""The command `run evaluate`."""

from __future__ import annotations

import json
import threading

import pytest

from tests.support import coordinator
from tests.support.coordinator import Device, DeviceSession, model_bytes
from tests.support.coordinator_programs import Programs

pytestmark = pytest.mark.slow


def test_the_command_waits_for_devices_and_prints_their_distribution(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    device = programs.device("cam-1")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    programs.command("run", "start", str(bundle), "--rounds", "1")
    session = device.connect()
    device.submit(session.assignment(), model_bytes(1.0))
    programs.command("run", "watch", "digits")
    answering = threading.Thread(target=answer, args=(device, session))
    answering.start()
    text = programs.command("run", "evaluate", "digits")
    answering.join()
    line = "model 1 on 1 device: accuracy median 0.7500, worst decile 0.7500"
    assert line in text
    found = json.loads(programs.command("run", "evaluate", "digits", "--json"))  # has ended, and is not repeated
    assert (found["metric"], found["value"], found["on_devices"]["number"]) == ("accuracy", 0.75, 1)
    scores = {"samples": 20, "score": 0.75, "local_score": 0.8}
    assert found["on_devices"]["scores"] == [{"device": "cam-1", **scores}]
    assert line in programs.command("run", "show", "digits", "--all")
    narrow = programs.command("run", "show", "digits")
    assert line in " ".join(narrow.split())
    assert all(len(line) <= 80 for line in narrow.splitlines())
    ended = programs.command("run", "evaluate", "digits", "--round", "0", "--deadline", "1")
    assert "\n  1 did not answer: cam-1" in ended
    assert "deadline_seconds is -1.0" in programs.command(
        "run", "evaluate", "digits", "--again", "--deadline", "-1", code=2
    )
    assert "run 'digits' has no global model 7" in programs.command("run", "evaluate", "digits", "--round", "7", code=3)


def answer(device: Device, session: DeviceSession) -> None:
    device.scored(session.evaluation(), 15, 16)
