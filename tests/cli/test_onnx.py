"""The command `onnx`: the newest or the chosen round, and nothing beyond the bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import PLAN_FILE
from moonfed.data.data_set import DataSet
from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput, MoonfedError, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import connect
from moonfed.export.parity import load_model
from moonfed.plan.interface import load_plan
from moonfed.release.model_file import write_onnx
from moonfed.transport.operator_connection import Endpoint
from tests.export.conftest import another_model, initial_model
from tests.support.control_service import Control
from tests.support.refusals import refused


def test_the_onnx_file_holds_the_newest_or_the_chosen_round(
    control: Control, bundle: Bundle, data: DataSet, data_file: Path, tmp_path: Path
) -> None:
    models = [another_model(bundle.manifest, seed) for seed in (1, 2)]
    for model in models:
        control.commit(model)
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")
    for round_number, expected_round in ((None, 2), (1, 1), (0, 0)):
        output = tmp_path / "model.onnx"
        with connect(Endpoint(control.address, None)) as runs:
            written = write_onnx(runs, "r", NpzSource(data_file), output, round_number=round_number)
        assert written.round == expected_round
        assert written.max_abs_diff <= 1e-5
        model = models[expected_round - 1] if expected_round else initial_model(bundle, tmp_path)
        load_model(plan, model, bundle.manifest)
        session = onnxruntime.InferenceSession(str(output), providers=["CPUExecutionProvider"])
        (found,) = session.run(["probabilities"], {"inputs": data.inputs})
        assert np.abs(np.asarray(found) - plan.predict(torch.from_numpy(data.inputs)).numpy()).max() < 1e-5
        assert read_metadata(output.read_bytes())["round"] == str(expected_round)


def test_beyond_the_bound_nothing_is_written(control: Control, data_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.onnx"
    output.write_bytes(b"the file before")
    with connect(Endpoint(control.address, None)) as runs:
        with pytest.raises(MoonfedError, match="at most -1 is allowed"):
            write_onnx(runs, "r", NpzSource(data_file), output, bound=-1)
        with refused(NotFound, "run", "r"):
            write_onnx(runs, "r", NpzSource(data_file), output, round_number=4)
        with refused(InvalidInput, "output"):
            write_onnx(runs, "r", NpzSource(data_file), tmp_path / "absent" / "model.onnx")
    assert output.read_bytes() == b"the file before"
