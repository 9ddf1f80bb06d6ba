"""W&B's files of an offline run, read back with its own reader."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.trackers.conftest import EXPECTED, Export

pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # of W&B's own imports


def records(file: Path) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, found = DataStore(), []
    store.open_for_scan(str(file))
    while data := store.scan_data():
        found.append(Record.FromString(data))
    store.close()
    return found


def values(items: Any) -> dict[str, Any]:  # noqa: ANN401
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_an_offline_run_has_everything_once(export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for variable in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    for _ in range(2):  # the second export replaces the first
        told = export("digits", "--to", "wandb", "fleet", "--devices")
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert f"`wandb sync {file.parent}` uploads it" in told["place"]
    found = records(file)
    (run,) = [record.run for record in found if record.HasField("run")][:1]
    assert (run.project, run.display_name) == ("fleet", "digits")
    config = {}
    for record in found:
        config |= values(record.run.config.update) | values(record.config.update)
    assert config["training.hyperparameters.learning_rate"] == 0.1
    rows = [values(record.history.item) for record in found if record.HasField("history")]
    told_values = {row["round"]: row for row in rows if "round" in row}
    for round_, expected in EXPECTED.items():
        assert {name: told_values[round_][name] for name in expected} == pytest.approx(expected)
    assert told_values[1]["device/cam-1/counted"] == 1.0
    pictures = {name for row in rows for name in row if name.startswith("pictures/")}
    assert pictures == {"pictures/curves", "pictures/confusion-night"}
    artifacts = [record.request.log_artifact.artifact for record in found if record.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in found if record.HasField("artifact")]
    names = {entry.path for artifact in artifacts for entry in artifact.manifest.contents}
    assert {"release/digits-1/model.onnx", "release/digits-1/MODEL_CARD.md"} <= names
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
