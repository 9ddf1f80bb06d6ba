"""The examples of docs/extending, installed as a separate package: a simulation with one part of each kind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moonfed.experiments.child_processes import our_program

pytestmark = pytest.mark.slow

PAGES = Path(__file__).parents[2] / "docs" / "extending"
CODE = re.compile(r"```python\n# (\S+)\n(.*?)```", re.DOTALL)
ENTRY_POINTS = re.compile(r"```toml\n(.*?)```", re.DOTALL)
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-moonfed"
version = "1.0"

[tool.setuptools]
packages = ["acme_moonfed"]
"""
RECIPE = """
dataset = "digits"
method = "confidence-penalty"
server_rule = "server-sgd"
uplink_encoding = "sign+zstd"
rounds = 2
parties = 3
partition = "iid"
train_samples = 200
test_samples = 100
reducer = "meamed"
[settings]
penalty = 0.2
epochs = 1
[server]
server_learning_rate = 0.7
[reducer_settings]
byzantine = 1
"""


def install_examples(directory: Path) -> Path:
    """Build the package that the pages describe, and install it into a folder for PYTHONPATH."""
    source, target, project = directory / "source", directory / "installed", PROJECT
    for page in ("objectives", "tasks", "metrics", "server-rules", "reducers", "encodings"):
        text = (PAGES / f"{page}.md").read_text()
        for file, code in CODE.findall(text):
            (source / file).parent.mkdir(parents=True, exist_ok=True)
            (source / file).write_text(code)
        project += "\n".join(ENTRY_POINTS.findall(text))
    (source / "acme_moonfed" / "__init__.py").touch()
    (source / "pyproject.toml").write_text(project)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target", str(target))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=120)
    return target


BUILD = """
import numpy as np
from moonfed.bundle.target import TargetSpec
from moonfed.export import build_bundle
from moonfed.tasks import TASKS
from moonfed.tasks.added_metric import compute_added, read_added_metrics
target = TargetSpec(kind="values", names=("visits",), shape=(1,))
bundle = build_bundle(model="mlp", shape=3, target=target, task="counts", output="visits")
scorer = TASKS[bundle.manifest.task.name]().scorer(target)
scorer.add(np.array([[1.0], [2.0]]), np.array([[1], [4]]), np.zeros((2, 3)))
print(bundle.manifest.metric.name, round(scorer.metrics()["deviance"], 6))
(top2,) = read_added_metrics(["top2_accuracy"])
outputs = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
print(*compute_added([top2], [outputs[:2], outputs[2:]], np.array([1, 2, 2]), target).items())
"""


def test_a_task_of_the_package_becomes_a_bundle_and_its_metric_measures(tmp_path: Path) -> None:
    path = os.pathsep.join([str(install_examples(tmp_path)), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)}
    command = [sys.executable, "-c", BUILD]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["deviance 0.772589", "('top2_accuracy', 0.6666666666666666)"]


@pytest.mark.usefixtures("forked_programs")
def test_the_pages_examples_are_a_package_that_simulates(tmp_path: Path) -> None:
    installed, recipe, output = install_examples(tmp_path), tmp_path / "recipe.toml", tmp_path / "simulation"
    recipe.write_text(RECIPE)
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [our_program("moonfed-experiments"), "simulate", str(recipe), "--output", str(output), "--workers", "1"]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    summary = json.loads((output / "summary.json").read_text())
    assert len((output / "results.jsonl").read_text().splitlines()) >= 2, summary
    without = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert without.returncode != 0
    assert "uplink_encoding is 'sign+zstd'" in without.stderr
