"""The command that starts a run."""

from __future__ import annotations

import json

from tests.support import coordinator
from tests.support.coordinator_programs import Programs


def test_an_operator_starts_a_run_with_robust_aggregation(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    bundle = str(coordinator.bundle_directory(programs.tmp / "bundle"))
    asked = ("--weight-cap", "20%", "--clip-norm", "2", "--clip-factor", "3", "--reducer", "geometric_median")
    words = ("run", "start", bundle, "--minimum-devices", "5", *asked, "--reducer-set", "byzantine=1")
    started = json.loads(programs.command(*words, "--json"))
    assert started["settings"]["robust"] == {
        "weight_cap": 0.2, "clip_norm": 2.0, "clip_factor": 3.0,
        "reducer": "geometric_median", "reducer_settings": {"byzantine": "1"},
    }  # fmt: skip
    against = "reducer geometric_median, byzantine 1"
    line = f"robust aggregation: weight cap 20%, clip norm 2, clip factor 3, {against}"
    assert line in programs.command("run", "show", "digits").splitlines()
    told = programs.command("run", "start", bundle, "--reducer", "multi_krum", "--reducer-set", "byzantine=1", code=2)
    assert "a round may close with 1 update; reducer 'multi_krum' needs 5 with byzantine=1" in told
    assert "weight_cap is 'much'" in programs.command("run", "start", bundle, "--weight-cap", "much", code=2)
    plain = json.loads(programs.command("run", "start", bundle, "--name", "plain", "--json"))
    assert plain["settings"]["robust"] is None
