from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import onnx
import pytest

from moonfed.errors import InvalidInput, MoonfedError
from moonfed.serving.models.repository import confined
from tests.support.model_repositories import BATCHED, INPUT, ONE_INSTANCE, OUTPUT, WARM_UP, linear, serve, write_model
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


LABELLED = BATCHED + INPUT + OUTPUT.replace("dims", 'label_filename: "labels.txt" dims') + ONE_INSTANCE
WARMED = LABELLED + WARM_UP.format(size=1, count=1, value='data_type: TYPE_FP32 dims: 4 input_data_file: "data"')


def replaced_by_link(path: Path, target: Path | str) -> None:
    """Replace a file or directory by a link to another place."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("target", ["file", "relative", "chain", "loop"])
@pytest.mark.parametrize("name", ["", "1", "1/model.onnx", "labels.txt", "config.pbtxt", "warmup", "warmup/data"])
def test_links_out_of_a_repository_are_not_followed(tmp_path: Path, name: str, target: str) -> None:
    outside = tmp_path / "outside"
    write_model(outside, "linear", 1, linear(), WARMED)
    write_model(tmp_path / "models", "linear", 1, linear(), WARMED)
    model = tmp_path / "models" / "linear"
    for directory in (outside / "linear", model):
        (directory / "labels.txt").write_text("a-secret\nb\nc\n")
        (directory / "warmup").mkdir()
        (directory / "warmup" / "data").write_bytes(bytes(16))
    serve(outside)  # which serves it
    (tmp_path / "chain").symlink_to(outside)
    places = {
        "file": outside / "linear" / name,
        "relative": Path(os.path.relpath(outside / "linear" / name, (model / name).parent)),
        "chain": tmp_path / "chain" / "linear" / name,
        "loop": model / name,
    }
    replaced_by_link(model / name, places[target])
    models = serve(tmp_path / "models", explicit=True)
    with pytest.raises(MoonfedError) as caught:
        models.load("linear")
    assert "a-secret" not in str(caught.value)
    assert not models.is_ready("linear")


@pytest.mark.parametrize("absolute", [True, False])
def test_links_within_a_repository_are_followed(tmp_path: Path, absolute: bool) -> None:
    store = tmp_path / "models" / ".store"
    write_model(tmp_path / "models" / ".store", "linear", 1, linear(), LABELLED)
    (store / "linear" / "labels.txt").write_text("a\nb\nc\n")
    model = tmp_path / "models" / "linear"
    model.mkdir()
    for name in ("1", "config.pbtxt", "labels.txt"):
        place = store / "linear" / name
        (model / name).symlink_to(place if absolute else Path("..") / ".store" / "linear" / name)
    (tmp_path / "models" / "same").symlink_to(model if absolute else "linear")
    (tmp_path / "current").symlink_to(tmp_path / "models")  # and to the repository itself
    models = serve(tmp_path / "current", explicit=True)
    for name in ("linear", "same"):
        models.load(name)
        assert models.is_ready(name, "1")


@pytest.mark.usefixtures("forked_programs")
def test_a_server_shows_nobody_a_file_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a-key { b c }\n")
    places = {"labels": "labels.txt", "config": "config.pbtxt", "version": "1", "graph": "1/model.onnx"}
    for model, place in places.items():
        write_model(tmp_path / "models", model, 1, linear(), LABELLED)
        (tmp_path / "models" / model / "labels.txt").write_text("a\nb\nc\n")
        replaced_by_link(tmp_path / "models" / model / place, Path("/") if place == "1" else tmp_path / "secret")
    (tmp_path / "models" / "root").symlink_to("/")
    write_model(tmp_path / "models", "linear", 1, linear())
    with served(tmp_path / "models", tmp_path / "log") as server:
        _, content = get(server.http, "/v2/repository/index", b"{}")
        ready = {name for name in (*places, "linear", "root") if get(server.http, f"/v2/models/{name}/ready")[0] == 200}
        log = server.log
    reasons = {entry["name"]: entry.get("reason", "") for entry in json.loads(content)}
    assert ready == {"linear"}
    for model in (*places, "root"):
        assert "is a symbolic link out of the repository" in reasons[model]
    assert b"a-key" not in content
    assert "a-key" not in log


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
