"""A run's weights as a file, and a run that starts from it."""

from __future__ import annotations

import json
from dataclasses import replace

from moonfed.blobs.store import ref_of_bytes
from tests.support import coordinator
from tests.support.coordinator import SPECS, model_bytes
from tests.support.coordinator_programs import Programs

MODEL = model_bytes(2.5)
OTHER = (replace(SPECS[0], name="another.bias"), *SPECS[1:])


def test_weights_are_written_and_start_another_run(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    device = programs.device("cam-1")
    bundle = str(coordinator.bundle_directory(programs.tmp / "bundle"))
    programs.command("run", "start", bundle, "--name", "one", "--rounds", "1")
    device.submit(device.connect().assignment(), MODEL)
    programs.command("run", "watch", "one")
    newest, initial = programs.tmp / "newest.safetensors", programs.tmp / "initial.safetensors"
    told = json.loads(programs.command("run", "weights", "one", "--output", str(newest), "--json"))
    assert (told["run"], told["round"], newest.read_bytes()) == ("one", 1, MODEL)
    shown = programs.command("run", "weights", "one", "--round", "0", "--output", str(initial))
    assert "round 0 of run one" in shown
    assert initial.read_bytes() == model_bytes(0.0)
    for source in ("one", str(newest)):
        started = json.loads(programs.command("run", "start", bundle, "--from", source, "--json"))
        assert started["model"]["sha256"] == ref_of_bytes(MODEL).sha256
    missing = programs.command("run", "weights", "one", "--round", "2", "--output", str(newest), code=3)
    assert "its newest is 1" in missing
    other = str(coordinator.bundle_directory(programs.tmp / "other", tensors=OTHER))
    told = programs.command("run", "start", other, "--from", "one", code=2)
    assert "from is 'one'" in told
