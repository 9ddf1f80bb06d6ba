"""The command that starts a run."""

from __future__ import annotations

import json
import os
import re
import zipfile
from typing import Any

import pytest

from moonfed.bundle.files import write_bundle
from moonfed.bundle.manifest import PLAN_FILE
from moonfed.sandbox.policy import available_level
from moonfed.server_rules.fednova import FedNova
from tests.support import coordinator
from tests.support.coordinator_programs import ENVIRONMENT, Programs
from tests.support.engineers_attacks import WRITERS, hostile
from tests.support.forked_process import PATCHES

pytestmark = pytest.mark.slow


def test_an_operator_starts_a_run_with_robust_aggregation(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    bundle = str(coordinator.bundle_directory(programs.tmp / "bundle"))
    bounds = ("--weight-cap", "1.5", "--clip-norm", "2", "--clip-factor", "3", "--exclude-after", "3")
    reducer = ("--reducer", "geometric_median", "--reducer-set", "byzantine=1")
    words = ("run", "start", bundle, "--minimum-devices", "5", *bounds, *reducer)
    started = json.loads(programs.command(*words, "--json"))
    expected = {
        "weight_cap": 1.5, "clip_norm": 2.0, "clip_factor": 3.0, "exclude_after": 3, "trusting": False,
        "reducer": "geometric_median", "reducer_settings": {"byzantine": 1},
    }  # fmt: skip
    assert {key: started["settings"][key] for key in expected} == expected
    chosen = "minimum devices 5, weight cap 1.5/N, clip norm 2, clip factor 3, exclude after 3"
    line = f"settings: {chosen}, reducer geometric_median, reducer settings byzantine=1"
    assert line in programs.command("run", "show", "digits", "--all").splitlines()
    told = programs.command("run", "start", bundle, "--reducer", "multi_krum", "--reducer-set", "byzantine=1", code=2)
    assert "needs 5 with byzantine=1" in told
    assert "weight_cap is 0.2" in programs.command("run", "start", bundle, "--weight-cap", "0.2", code=2)
    unclipped = programs.command("run", "start", bundle, "--weight-cap", "2", "--exclude-after", "3", code=2)
    assert "exclude_after is 3" in unclipped
    plain = json.loads(programs.command("run", "start", bundle, "--name", "plain", "--trusting", "--json"))
    assert (plain["settings"]["trusting"], plain["settings"]["weight_cap"]) == (True, 0.0)
    told = programs.command("run", "start", bundle, "--trusting", "--clip-factor", "3", code=2)
    assert "trusting is given together" in told


def test_a_bundle_that_would_exhaust_the_machine_is_rejected_in_one_sentence(programs: Programs) -> None:
    """It is rejected before the coordinator is called; none is running."""
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
    for name, problem in (("small.zip", "larger than it may"), ("pipe", "cannot"), ("device", "cannot")):
        told = programs.command("run", "start", str(programs.tmp / name), code=7)
        assert (problem in told, told.count("\n")) == (True, 1), told


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "weight cap 1.25/N, clip factor 1.25"),
        (coordinator.SCAFFOLD, "weight cap 1.25/N"),
        ({"server_rule": FedNova()}, "trusting"),
    ],
)
def test_a_run_bounds_each_devices_influence_as_far_as_its_method_allows(
    programs: Programs, fields: dict[str, Any], line: str
) -> None:
    programs.serve("--name", "localhost")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle", **fields)
    programs.command("run", "start", str(bundle), "--name", "r")
    assert f"settings: {line}" in programs.command("run", "show", "r", "--all").splitlines()


def test_a_recipe_gives_the_settings_and_options_override_them(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    bundle, file = str(coordinator.bundle_directory(programs.tmp / "bundle")), programs.tmp / "recipe.toml"
    file.write_text(
        'rounds = 7\ncohort = "50%"\nquorum = "all"\nseed = 3\nparties = 200\nbeta = 0.5\n'
        'clip_norm = 2\nreducer = "geometric_median"\n[reducer_settings]\nbyzantine = 1\n'
    )
    words = ("run", "start", bundle, "--recipe", str(file), "--minimum-devices", "5")
    first = json.loads(programs.command(*words, "--name", "a", "--rounds", "4", "--json"))["settings"]
    assert (first["rounds"], first["cohort"], first["seed"], first["quorum"]) == (4, "50%", 3, "all")
    assert (first["reducer"], first["clip_norm"]) == ("geometric_median", 2.0)
    (programs.tmp / "again.toml").write_text(programs.command("run", "show", "a", "--recipe"))
    again = ("run", "start", bundle, "--recipe", str(programs.tmp / "again.toml"))
    assert json.loads(programs.command(*again, "--name", "b", "--json"))["settings"] == first
    (programs.tmp / "again.json").write_text(json.dumps(first))
    same = ("run", "start", bundle, "--recipe", str(programs.tmp / "again.json"), "--name", "d", "--json")
    assert json.loads(programs.command(*same))["settings"] == first
    trusting = json.loads(programs.command(*again, "--name", "c", "--trusting", "--json"))
    assert (trusting["settings"]["trusting"], trusting["settings"]["reducer"]) == (True, "mean")
    file.write_text('method = "moon"\n')
    told = programs.command("run", "start", bundle, "--recipe", str(file), code=2)
    assert "method (= 'moon')" in told


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("patch", ["", "tests.support.without_inspection"])
def test_a_plan_that_attacks_the_operator_starts_no_run(
    name: str, patch: str, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No coordinator is running: the plan is judged first. Without the inspection, the sandbox alone must stop it."""
    if patch and available_level() != "strict":
        pytest.skip("needs Landlock and seccomp")
    monkeypatch.setenv(PATCHES, patch)
    attack, planted = WRITERS[name], programs.tmp / "planted.py"
    write_bundle(programs.tmp / "bundle", hostile(coordinator.make_bundle(), attack, planted))
    unsafe, failed, unavailable = 11, 9, 10
    code = unsafe if not patch else failed if attack.on_load else unavailable
    told = programs.command("run", "start", str(programs.tmp / "bundle"), "--insecure", code=code)
    if not patch:
        assert re.search(attack.rejection, told), told
    assert not planted.exists()


@pytest.mark.usefixtures("fresh_programs")
def test_a_command_that_starts_a_run_imports_no_torch(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child does, in the sandbox."""
    hook, dumped = programs.tmp / "hook", programs.tmp / "modules"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        f"import atexit, sys\natexit.register(lambda: open({str(dumped)!r}, 'a').write(' '.join(sys.modules)))\n"
    )
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", os.pathsep.join([str(hook), ENVIRONMENT["PYTHONPATH"]]))
    programs.serve("--name", "localhost")
    dumped.unlink(missing_ok=True)
    programs.command("run", "start", str(coordinator.bundle_directory(programs.tmp / "bundle")))
    modules = set(dumped.read_text().split())
    assert "moonfed.sandbox.plan_process" in modules
    assert not {name.partition(".")[0] for name in modules} & {"torch", "onnx", "onnxruntime"}
