"""The command that starts a run."""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any

import pytest

from moonfed.bundle import write_bundle
from moonfed.manifest import PLAN_FILE
from moonfed.server_rules.fednova import FedNova
from tests.support import coordinator
from tests.support.coordinator_programs import Programs


def test_an_operator_starts_a_run_with_robust_aggregation(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    bundle = str(coordinator.bundle_directory(programs.tmp / "bundle"))
    asked = ("--weight-cap", "20%", "--clip-norm", "2", "--clip-factor", "3", "--reducer", "geometric_median")
    words = ("run", "start", bundle, "--minimum-devices", "5", *asked, "--reducer-set", "byzantine=1")
    started = json.loads(programs.command(*words, "--json"))
    assert started["settings"]["robust"] == {
        "weight_cap": 0.2, "clip_norm": 2.0, "clip_factor": 3.0, "bounds_from": 1,
        "reducer": "geometric_median", "reducer_settings": {"byzantine": "1"},
    }  # fmt: skip
    against = "reducer geometric_median, byzantine 1"
    line = f"robust aggregation: weight cap 20%, clip norm 2, clip factor 3, {against}"
    assert line in programs.command("run", "show", "digits").splitlines()
    told = programs.command("run", "start", bundle, "--reducer", "multi_krum", "--reducer-set", "byzantine=1", code=2)
    assert "a round may close with 1 update; reducer 'multi_krum' needs 5 with byzantine=1" in told
    assert "weight_cap is 'much'" in programs.command("run", "start", bundle, "--weight-cap", "much", code=2)
    plain = json.loads(programs.command("run", "start", bundle, "--name", "plain", "--trusting", "--json"))
    assert plain["settings"]["robust"] is None
    told = programs.command("run", "start", bundle, "--trusting", "--clip-factor", "3", code=2)
    assert "trusting is given together with bounds or a reducer; it must be given alone" in told


def test_a_bundle_that_would_exhaust_the_machine_is_rejected_in_one_sentence(programs: Programs) -> None:
    """Before the coordinator is called: there is none."""
    bundle, small = coordinator.make_bundle(), programs.tmp / "small.zip"
    with zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in bundle.files.items():
            archive.writestr(name, bytes(50 << 20) if name == PLAN_FILE else content)
    assert small.stat().st_size < 1 << 20
    for number, kind in enumerate(("pipe", "device")):
        write_bundle(programs.tmp / kind, bundle)
        plan = programs.tmp / kind / PLAN_FILE
        plan.unlink()
        os.mkfifo(plan) if number == 0 else plan.symlink_to("/dev/zero")
    for name, problem in (("small.zip", "is larger than its manifest says"), ("pipe", "cannot"), ("device", "cannot")):
        told = programs.command("run", "start", str(programs.tmp / name), code=7)
        assert (problem in told, told.count("\n")) == (True, 1), told


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "weight cap 30%, clip factor 3, from 5 updates in a round, reducer mean"),
        (coordinator.SCAFFOLD, "weight cap 30%, from 5 updates in a round, reducer mean"),
        ({"server_rule": FedNova()}, ""),
    ],
)
def test_a_run_bounds_each_devices_influence_as_far_as_its_method_allows(
    programs: Programs, fields: dict[str, Any], line: str
) -> None:
    programs.serve("--name", "localhost")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle", **fields)
    programs.command("run", "start", str(bundle), "--name", "r")
    shown = [shown for shown in programs.command("run", "show", "r").splitlines() if "robust" in shown]
    assert shown == ([f"robust aggregation: {line}"] if line else [])
