from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from moonfed.errors import InvalidInput
from moonfed.serving.repository import confined
from tests.support.model_repositories import BATCHED, INPUT, OUTPUT, linear, serve, write_model
from tests.support.server_process import get, served

OUTSIDE = ("../../../etc/passwd", "/etc/passwd", "labels/../../secret", "..", "a\0b")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_config_names_only_files_of_its_model(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"label_filename is .*; it must be a file below the model's directory"):
        confined(tmp_path, name, "label_filename")
    assert confined(tmp_path, "labels/en.txt", "label_filename") == tmp_path / "labels" / "en.txt"


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("label_filename", BATCHED + INPUT + OUTPUT.replace("dims", 'label_filename: "../../secret" dims')),
        ("default_model_filename", BATCHED + 'default_model_filename: "../../../secret"'),
        (
            "input_data_file",
            BATCHED
            + INPUT
            + OUTPUT
            + 'model_warmup { name: "w" batch_size: 1 inputs { key: "inputs" value { data_type: TYPE_FP32 dims: 4 '
            + 'input_data_file: "../../secret" } } }',
        ),
    ],
)
def test_a_model_whose_config_names_a_file_elsewhere_is_not_loaded(tmp_path: Path, field: str, config: str) -> None:
    (tmp_path / "secret").write_text("a key")
    write_model(tmp_path / "models", "linear", 1, linear(), config)
    models = serve(tmp_path / "models", explicit=True)
    with pytest.raises(InvalidInput, match=f"{field} is .*; it must be a file below the model's directory"):
        models.load("linear")


@pytest.mark.usefixtures("forked_programs")
def test_a_server_shows_nobody_a_file_outside_a_model(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a key\n")
    write_model(tmp_path / "models", "linear", 1, linear())
    labels = OUTPUT.replace("dims", 'label_filename: "../../secret" dims')
    write_model(tmp_path / "models", "evil", 1, linear(), BATCHED + INPUT + labels)
    with served(tmp_path / "models", tmp_path / "log") as server:
        ready = [get(server.http, f"/v2/models/{name}/ready")[0] for name in ("linear", "evil")]
        _, index = get(server.http, "/v2/repository/index", b"{}")
        status, _ = get(server.http, "/v2/models/..%2F..%2Fsecret/config")
    assert (ready, status) == ([200, 400], 404)
    assert b"label_filename is '../../secret'; it must be a file below the model's directory" in index
    assert b"a key" not in index


def test_a_model_whose_tensors_are_elsewhere_is_not_loaded(tmp_path: Path) -> None:
    graph = onnx.load_model_from_string(linear())
    tensor = graph.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    (tmp_path / "models").mkdir()
    write_model(tmp_path / "models", "linear", 1, graph.SerializeToString(), "")
    (tmp_path / "models" / "linear" / "1" / "secret").write_bytes(bytes(4096))
    models = serve(tmp_path / "models", explicit=True)
    with pytest.raises(InvalidInput, match="whose data are in another file; it must contain its tensors"):
        models.load("linear")
