"""The operator's commands for runs."""

from __future__ import annotations

import json

import pytest

from tests.support import coordinator
from tests.support.coordinator import model_bytes
from tests.support.coordinator_programs import Programs

pytestmark = pytest.mark.slow


def test_the_operators_commands(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    told = json.loads(programs.command("token", "create", "--uses", "2", "--json"))
    assert told["token"].startswith("moonfed-join-1.")
    device = programs.device("cam-1")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    started = json.loads(programs.command("run", "start", str(bundle), "--rounds", "1", "--cohort", "20%", "--json"))
    assert (started["run"], started["status"], started["settings"]["cohort"]) == ("digits", "running", "20%")
    assert "waiting for 1 more device" in programs.command("run", "show", "digits")
    device.submit(device.connect().assignment(), model_bytes(1.0))
    lines = [json.loads(line) for line in programs.command("run", "watch", "digits", "--json").splitlines()]
    assert (lines[0]["event"], lines[-1]["event"], lines[-1]["run"]["status"]) == ("snapshot", "ended", "finished")
    shown = programs.command("run", "show", "digits")
    assert "train_loss" in shown
    assert "1 of 1" in shown
    assert "server rule mean: weighting samples" in shown
    document = json.loads(programs.command("run", "show", "digits", "--json"))
    assert document["server_rule"] == {"name": "mean", "weighting": "samples"}
    assert document["settings"]["sampling"] == "uniform"
    told_twice = programs.command("run", "start", str(bundle), "--sampling", "samples", code=2)
    assert "count a device's size" in told_twice
    assert "sampling is 'size'" in programs.command("run", "start", str(bundle), "--sampling", "size", code=2)
    assert json.loads(programs.command("run", "show", "digits", "--json"))["rounds"][0]["counted"] == ["cam-1"]
    only = json.loads(programs.command("run", "show", "digits", "--round", "1", "--json"))
    assert only["rounds"] == document["rounds"]
    assert "has no round 2 that has ended" in programs.command("run", "show", "digits", "--round", "2", code=3)
    assert json.loads(programs.command("run", "list", "--json"))[0]["round"] == 1
    assert "finished" in programs.command("run", "list")
    assert json.loads(programs.command("device", "list", "--json"))[0]["device"] == "cam-1"
    assert programs.command("device", "history", "cam-1", "--newest", "1").endswith("cam-1 in 1 round: 1 counted\n")
    (part,) = json.loads(programs.command("device", "history", "cam-1", "--json"))
    assert (part["run"], part["round"], part["outcome"], part["seconds"] > 0) == ("digits", 1, "counted", True)
    assert "there is no device 'cam-7'" in programs.command("device", "history", "cam-7", code=3)
    assert json.loads(programs.command("run", "show", "digits", "--json"))["settings"]["keep_last"] == 20
    assert "keep_last is 0" in programs.command("run", "prune", "digits", "--keep-last", "0", code=2)
    assert "deleted 0 global models" in programs.command("run", "prune", "digits", "--keep-last", "1")
    assert "disk-budget is 'much'" in programs.command("serve", "--disk-budget", "much", code=2)
    assert "no run 'other'" in programs.command("run", "stop", "other", code=3)
    assert "cohort is 'many'" in programs.command("run", "start", str(bundle), "--cohort", "many", code=2)
    assert "models of its 1 round?" in programs.command("run", "delete", "digits", code=1), "it asks"
    programs.command("run", "delete", "digits", "--yes")
    assert json.loads(programs.command("run", "list", "--json")) == []
    assert "no run 'digits'" in programs.command("run", "delete", "digits", "--yes", code=3)
    told = programs.command("run", "delete", "digits", code=3)
    assert "no run 'digits'" in told
    assert "Delete" not in told, "it does not ask first"
    assert "is not a bundle" in programs.command("run", "start", str(programs.tmp / "nothing"), code=3)
    wrong = programs.tmp / "wrong.safetensors"
    wrong.write_bytes(model_bytes(1.0, coordinator.SPECS[:1]))
    told = programs.command("run", "start", str(bundle), "--from", str(wrong), code=2)
    assert f"from is {str(wrong)!r}" in told
    assert "is missing" in told
    nowhere = programs.command("run", "start", str(bundle), "--from", str(programs.tmp / "no"), code=3)
    assert "no'; there is no" in nowhere
    assert "valid_hours is -1.0" in programs.command("token", "create", "--valid-hours", "-1", code=2)


def test_a_run_is_paused_resumed_and_stopped_and_whoever_watches_learns_how_it_ended(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    programs.command("run", "start", str(bundle))
    assert "run digits (fedavg): paused, 0 of 10 rounds; paused: no round" in programs.command("run", "pause", "digits")
    assert json.loads(programs.command("run", "resume", "digits", "--json"))["status"] == "running"
    assert "Stop run digits for good, after 0 of 10 rounds? [y/N]" in programs.command("run", "stop", "digits", code=1)
    assert "stopped" in programs.command("run", "stop", "digits", "--yes")
    assert "stopped" in programs.command("run", "stop", "digits"), "one that has ended stays as it is"
    assert "run 'digits' was stopped" in programs.command("run", "watch", "digits", code=13)
    told = programs.command("run", "resume", "digits", code=4)
    assert "run 'digits' has been stopped" in told


def test_a_run_whose_devices_do_not_fit_fails_with_the_reason(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    session = programs.device("cam-1").connect()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    limits = ("--label", "site=berlin", "--allow-empty", "--max-attempts", "2", "--deadline", "0.3")
    programs.command("run", "start", str(bundle), *limits)
    reason = "no eligible device within 0.3 s: 1 device is online; not eligible: cam-1 (without the label site=berlin)"
    assert reason in programs.command("run", "watch", "digits", code=14)
    assert "no eligible device" in programs.command("run", "list"), "the beginning fits"
    assert reason in " ".join(programs.command("run", "show", "digits").split())
    shown = json.loads(programs.command("run", "show", "digits", "--json"))
    assert (shown["status"], shown["settings"]["max_attempts"], len(shown["rounds"])) == ("failed", 2, 2)
    assert reason in shown["reason"]
    session.leave()
