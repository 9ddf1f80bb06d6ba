"""CSV and Parquet files, read back with pandas and pyarrow."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet

from moonfed.errors import InvalidInput
from tests.coordinator.trackers.conftest import EXPECTED, Export, files_in
from tests.support.refusals import refused


def test_a_directory_has_everything(export: Export, tmp_path: Path) -> None:
    for _ in range(2):  # the second export replaces the first
        told = export("digits", "--to", "csv", str(tmp_path / "out"), "--devices")
    assert (told["status"], told["round"], told["place"]) == ("finished", 3, str(tmp_path / "out"))
    metrics = pd.read_csv(tmp_path / "out" / "metrics.csv", index_col="round")
    assert list(metrics.index) == list(EXPECTED)
    for round_, values in EXPECTED.items():
        assert {name: metrics.loc[round_, name] for name in values} == pytest.approx(values)
    assert metrics["accuracy@night"].isna().tolist() == [True, True, True, False]
    parameters = pd.read_csv(tmp_path / "out" / "parameters.csv", index_col="name")["value"]
    assert (parameters["method"], parameters["settings.rounds"]) == ("fedavg", "3")
    assert parameters["training.hyperparameters.learning_rate"] == "0.1"
    devices = pd.read_csv(tmp_path / "out" / "devices.csv")
    assert len(devices) == 6
    assert set(devices["device"]) == {"cam-1", "cam-2"}
    assert devices["counted"].tolist() == [1.0] * 6
    assert files_in(tmp_path / "out") == {
        "metrics.csv",
        "parameters.csv",
        "devices.csv",
        "pictures/curves.png",
        "pictures/confusion-night.png",
        "release/digits-1/MODEL_CARD.md",
        "release/digits-1/model.onnx",
    }


def test_a_file_has_the_metrics(export: Export, tmp_path: Path) -> None:
    export("digits", "--to", "csv", str(tmp_path / "digits.csv"))
    assert files_in(tmp_path) == {"digits.csv"}
    assert pd.read_csv(tmp_path / "digits.csv")["accuracy"].tolist() == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(("target", "words"), [("x.parquet", ()), ("x.csv", ("--devices",))])
def test_a_wrong_target_is_one_sentence(export: Export, tmp_path: Path, target: str, words: tuple[str, ...]) -> None:
    with refused(InvalidInput, "target", f"{tmp_path}/{target}"):
        export("digits", "--to", "csv", str(tmp_path / target), *words)


def test_parquet_has_the_same_values_with_types(export: Export, tmp_path: Path) -> None:
    export("digits", "--to", "parquet", str(tmp_path / "out"), "--devices")
    export("digits", "--to", "csv", str(tmp_path / "out"), "--devices")
    for name in ("metrics", "devices"):
        written, table = pd.read_csv(tmp_path / "out" / f"{name}.csv"), tmp_path / "out" / f"{name}.parquet"
        pd.testing.assert_frame_equal(pd.read_parquet(table), written, check_dtype=False)
    schema = parquet.read_schema(tmp_path / "out" / "metrics.parquet")
    assert (str(schema.field("round").type), str(schema.field("accuracy").type)) == ("int64", "double")
    assert json.loads(schema.metadata[b"moonfed.parameters"])["settings.rounds"] == 3
