"""A recipe: simulated on virtual parties, and then run on devices by the same draws, it yields the same model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tomllib

from moonfed.blobs.tensors import open_model
from moonfed.bundle.files import read_bundle
from moonfed.experiments.child_processes import run
from tests.support.forked_process import PATCHES

from .conftest import Federation

pytestmark = pytest.mark.slow

DEVICES = 5
RECIPE = """rounds = 3
cohort = "80%"
quorum = "all"
over_selection = "0%"
uplink_encoding = "int8+zstd"
downlink_encoding = "bfloat16"
sampling = "samples"
seed = 3
parties = 5
beta = 5.0
target = "left"
clip_factor = 0.9
reducer = "trimmed_mean"
[reducer_settings]
share = 0.25
"""


def write_customers(path: Path) -> Path:
    """Customers of two plans, who leave if they are old or have the plan `basic`."""
    generator = np.random.default_rng(3)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "plan", "left"])
        for _ in range(400):
            age, plan = float(generator.uniform(18, 90)), ("basic", "plus")[generator.integers(2)]
            writer.writerow([f"{age:.1f}", plan, "yes" if age > 60 or plan == "basic" else "no"])
    return path


@pytest.mark.timeout(500)
def test_what_was_simulated_is_what_runs(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cohorts are smaller than the fleet, so the coordinator is given the simulation's secret."""
    table, columns, bundle = write_customers(tmp_path / "customers.csv"), tmp_path / "columns.json", tmp_path / "bundle"
    (tmp_path / "recipe.toml").write_text(RECIPE)
    run("moonfed-export", "columns", str(table), "--target", "left", "--output", str(columns))
    settings = [word for text in ("epochs=2", "batch_size=16", "learning_rate=0.05") for word in ("--set", text)]
    rule = ("--server-rule", "fedavgm", "--server-set", "server_momentum=0.5", "--server-set", "weighting=uniform")
    run(*("moonfed-export", "bundle", "--model", "mlp", "--columns", str(columns)), *settings, *rule,
        *("--output", str(bundle)))  # fmt: skip
    simulated = tmp_path / "simulated"
    run("moonfed-experiments", "simulate", str(tmp_path / "recipe.toml"), "--bundle", str(bundle),
        "--data", str(table), "--output", str(simulated))  # fmt: skip
    split = ("--devices", str(DEVICES), "--beta", "5.0", "--seed", "3", "--output", str(tmp_path / "parts"))
    run("moonfed-experiments", "partition", str(table), "--columns", str(columns), *split)

    with monkeypatch.context() as patch:
        patch.setenv(PATCHES, "tests.support.simulated_draw")
        federation.serve()
    names = [f"party-{number}" for number in range(1, DEVICES + 1)]
    federation.enrol(*names)
    for number, name in enumerate(names, start=1):
        federation.start_device(name, data=str(tmp_path / "parts" / f"device-{number}.csv"))
    federation.start_run(bundle, "left", "--recipe", str(simulated / "recipe.toml"))
    federation.until_finished("left")

    specs = read_bundle(bundle).manifest.tensors
    virtual = np.array(open_model(simulated / "model.safetensors", specs))
    assert np.abs(virtual - federation.global_model("left", 3, bundle)).max() <= 1e-6
    assert np.abs(virtual - federation.global_model("left", 2, bundle)).max() > 1e-3
    assert [len(round_.counted) for round_ in federation.rounds("left")] == [4, 4, 4]
    assert any(round_.incidents for round_ in federation.rounds("left")), "the defence never acted"

    shown = run("moonfed-coordinator", "run", "show", "left", "--recipe", *federation.operator)
    (tmp_path / "shown.toml").write_text(shown)
    again = ("--parties", "5", "--beta", "5.0", "--target", "left", "--output", str(tmp_path / "again"))
    run("moonfed-experiments", "simulate", str(tmp_path / "shown.toml"), "--bundle", str(bundle),
        "--data", str(table), *again)  # fmt: skip
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (simulated / "model.safetensors").read_bytes()
    recipes = [tomllib.loads((tmp_path / name / "recipe.toml").read_text()) for name in ("again", "simulated")]
    assert [recipe.pop("name") for recipe in recipes] == ["shown", "recipe"]
    assert recipes[0] == recipes[1], json.dumps(recipes)
