"""W&B's files of an offline run, read back with W&B's own reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.trackers.conftest import EXPECTED, Export

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]
READER = [sys.executable, "-m", "wandb", "leet", "inspect", "--json"]


def records(file: Path) -> dict[str, list[Any]]:
    """Return the records of a file by their type, in order."""
    told = subprocess.run([*READER, str(file)], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[Any]] = {}
    for record in map(json.loads, told.splitlines()):
        found.setdefault(record["type"], []).append(record[record["type"]])
    return found


def test_an_offline_run_has_everything_once(export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for variable in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    for _ in range(2):  # the second export replaces the first
        told = export("digits", "--to", "wandb", "fleet", "--devices")
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert told["place"].endswith(f"wandb/{file.parent.name}` uploads it")
    found = records(file)
    assert (found["run"][0]["project"], found["run"][0]["display_name"]) == ("fleet", "digits")
    config = {name: value for record in found["config"] for name, value in record["update"].items()}
    assert config["training.hyperparameters.learning_rate"] == 0.1
    rows = [record["item"] for record in found["history"]]
    by_round: dict[int, dict[str, Any]] = {}
    for row in rows:  # pictures are in rows of their own, of the newest round
        by_round.setdefault(row["round"], {}).update(row)
    assert list(by_round) == list(EXPECTED)
    for round_, expected in EXPECTED.items():
        assert {name: by_round[round_][name] for name in expected} == pytest.approx(expected)
    assert by_round[1]["device/cam-1/counted"] == 1.0
    pictures = {name for row in rows for name in row if name.startswith("pictures/")}
    assert {name.split(".")[0] for name in pictures} == {"pictures/curves", "pictures/confusion-night"}
    (artifact,) = found["artifact"]
    names = {entry["path"] for entry in artifact["manifest"]["contents"]}
    assert names == {"release/digits-1/model.onnx", "release/digits-1/MODEL_CARD.md"}
    assert found["exit"][0].get("exit_code", 0) == 0
