"""A thousand mutants of honest plans, and the oracle itself: without the inspection it must notice executions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from moonfed.plan.inspection.operators import compile_archive
from tests.fuzzing import plan_mutants
from tests.fuzzing.plan_decoders import Constructs
from tests.fuzzing.plan_mutants import LOADED, REFUSED, Oracle, operators_of
from tests.support.attack_bundles import ATTACKS
from tests.support.attack_plans import archive_of
from tools.generate_operators import ROW, compiled


@pytest.mark.slow
def test_mutants_are_refused_or_harmless_and_execute_nothing_while_they_load(tmp_path: Path) -> None:
    archives = [archive_of(Constructs()), compiled("mlp", ROW, "moon", "none")]
    counts = plan_mutants.run(archives, 1000, seed=1, findings=tmp_path)
    assert [path.read_text() for path in tmp_path.glob("*.txt")] == []
    assert sum(counts.values()) == 1000
    assert counts[REFUSED] > counts[LOADED] > 0, "mutants that are all refused, or all harmless, would prove nothing"


@pytest.mark.parametrize("name", ["default", "default, tab", "default, form feed", "constant"])
def test_the_oracle_notices_what_a_plan_executes_while_it_loads(name: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    plan = ATTACKS[name].plan(canary / "trace")
    oracle = Oracle(canary)
    with oracle:
        compile_archive(plan)
    assert "trace" in oracle.seen(set())
    (canary / "trace").unlink()
    assert any("from_file" in operator for operator in oracle.operators), "even if it leaves no file"


def test_the_campaign_finds_executions_if_nothing_is_inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_mutants, "inspect_archive", lambda content: content)
    counts = plan_mutants.run([archive_of(Constructs())], 500, seed=1, findings=tmp_path)
    reasons = {path.read_text().partition(";")[0] for path in tmp_path.glob("*.txt")}
    assert counts["executed or not allowed"]
    assert any("trace" in reason or "was executed" in reason for reason in reasons), reasons


def test_operators_are_read_from_graphs_and_not_from_their_strings() -> None:
    class Plan(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> str:
            return f"aten::save {inputs.digamma()}"

    assert operators_of(torch.jit.script(Plan())) >= {"aten::digamma", "aten::format"}
    assert "aten::save" not in operators_of(torch.jit.script(Plan()))
