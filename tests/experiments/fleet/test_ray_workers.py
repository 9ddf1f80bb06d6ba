"""Simulations on Ray give the same results as in processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moonfed.experiments.child_processes import run
from tests.support.forked_process import PATCHES

pytestmark = pytest.mark.slow

pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.mark.usefixtures("forked_programs")
def test_ray_trains_the_same_model_as_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.shared_bundles")
    recipe = tmp_path / "moon.toml"
    recipe.write_text(
        'dataset = "digits"\nmethod = "moon"\nrounds = 2\nparties = 3\n[settings]\nepochs = 2\nbatch_size = 32\n'
    )
    outcomes = {}
    for engine in ("processes", "ray"):
        options = ("--engine", engine, "--workers", "2", "--output", str(tmp_path / engine))
        outcomes[engine] = json.loads(run("moonfed-experiments", "simulate", str(recipe), "--json", *options))
    assert outcomes["ray"]["accuracy"] == outcomes["processes"]["accuracy"]
    models = [(tmp_path / engine / "model.safetensors").read_bytes() for engine in ("processes", "ray")]
    assert models[0] == models[1]
