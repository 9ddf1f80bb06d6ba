"""The commands that build, inspect and describe bundles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from moonfed.bundle.files import read_bundle
from moonfed.bundle.target import TargetSpec
from moonfed.cli.program import app
from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.export.bundle_recipe import read_input, read_samples
from moonfed.export.methods import LOCAL_ONLY, METHODS
from moonfed.server_rules import SERVER_RULES
from moonfed.signing.bundle_signature import signed_by
from moonfed.signing.key_files import read_trust
from tests.cli.conftest import TABLE, program
from tests.support.refusals import refused

FEDERATED = ", ".join(name for name in METHODS if name not in LOCAL_ONLY)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]


def steps(model: str) -> str:
    """Return the lines that tell how far a bundle is."""
    sentence = (
        f"building model {model}",
        "compiling plan and graph",
        "tracing the plan's graphs",
        "training a few steps, and comparing graph and plan",
    )
    return "".join(f"moonfed-export: {step}\n" for step in sentence)


def test_a_custom_model_in_the_current_directory_becomes_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def model(shape, classes):\n"
        "    return nn.Linear(shape[0], 8), nn.Linear(8, 8), nn.Linear(8, classes)\n"
    )
    done = program(
        *("bundle", "--model", "mine:model", "--input", "features:4", "--classes", "3", "--method", "moon"),
        *("--set", "mu=1", "--set", "previous_models=2", "--std", "2", "--output", "b.zip"),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, steps("mine:model"))
    assert done.stdout.startswith("b.zip holds bundle 'b', sha256 ")
    manifest = read_bundle(tmp_path / "b.zip").manifest
    assert (manifest.name, manifest.model, manifest.classes) == ("b", "mine:model", ("0", "1", "2"))
    assert (manifest.training.hyperparameters["mu"], manifest.previous_models) == (1.0, 2)


def test_a_first_bundle_is_signed_with_a_key_made_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, path = tmp_path / "keys", str(tmp_path / "b")
    monkeypatch.setenv("MOONFED_KEYS", str(keys))
    first = program(*TABLE, "--output", path)
    (key,) = keys.glob("key-*.pem")
    created = f"moonfed-export: created the signing key {key}; keep a copy of {keys} in a safe place\n"
    assert first.stderr == created + steps("mlp")
    assert program(*TABLE, "--output", path, "--force").stderr == steps("mlp")
    trust = read_trust(keys / "trust.json").verify()
    assert read_bundle(Path(path), signed_by(trust)).manifest.name == "b"
    shown = json.loads(program("inspect", path, "--json").stdout)["signature"]
    assert shown["keys"] == [key.id for key in trust.keys]
    key.chmod(0o644)
    exposed = program(*TABLE, "--output", path, "--force")
    assert (exposed.returncode, "private: chmod 600" in exposed.stderr) == (2, True)


@pytest.mark.parametrize("name", ["b", "b.zip"])
def test_another_bundle_is_replaced_only_on_request(name: str, tmp_path: Path) -> None:
    runner, path = CliRunner(), tmp_path / name
    runner.invoke(app, [*TABLE, "--name", "first", "--output", str(path)], catch_exceptions=False)
    with refused(AlreadyExists, "output"):
        runner.invoke(app, [*TABLE, "--name", "second", "--output", str(path)], catch_exceptions=False)
    assert read_bundle(path).manifest.name == "first"
    runner.invoke(app, [*TABLE, "--name", "second", "--output", str(path), "--force"], catch_exceptions=False)
    assert read_bundle(path).manifest.name == "second"


def test_inspect_describes_a_bundle(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")
    built = runner.invoke(app, [*TABLE, "--name", "table", "--output", path, "--json"], catch_exceptions=False)
    shown = runner.invoke(app, ["inspect", path], catch_exceptions=False).output
    document = json.loads(runner.invoke(app, ["inspect", path, "--json"], catch_exceptions=False).output)
    assert json.loads(built.stdout)["sha256"] == document["sha256"]
    assert document["parameters"] == (4 * 64 + 64) + (64 * 64 + 64) + (64 * 2 + 2)
    assert document["target"]["names"] == ["no", "yes"]
    assert "mlp, 4,610 parameters in 6 tensors" in shown
    assert "features, float32 4" in shown
    assert "2: no, yes" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "32x32"], "input is '32x32'"),
        (["--input", "series:4"], "input is 'series:4'"),
        (["--input", "tokens:4"], "vocabulary is missing; with input 'tokens:4', give --vocabulary"),
        (["--vocabulary", "v.txt"], "vocabulary is 'v.txt'; it belongs to tokens, and input is 'features:4'"),
        (["--task", "translation"], "task is 'translation'; it must be one of classification, multilabel"),
        (["--task", "anomaly-detection"], "classes is 'no,yes'; it must not .* which takes --input$"),
        (["--values", "price"], "values is 'price'; it must not .* which takes --input and --classes"),
        (["--target-mean", "1"], "target-mean is '1'; it must not be given"),
        (["--task", "segmentation"], "task is 'segmentation' and input.kind 'features'; it must be image"),
        (["--task", "next-token"], "classes is 'no,yes'; it must not .* takes --input and --vocabulary"),
        (["--set", "delta=2"], "setting 'delta' .* is unknown"),
        (["--input", "0x8x3"], r"input.shape is \(0, 8, 3\)"),
        (["--mean", "half"], "mean is 'half'"),
        (["--set", "mu"], "--set is 'mu'"),
        (["--server-set", "beta1"], "--server-set is 'beta1'"),
        (["--server-rule", "median"], f"server_rule is 'median'; it must be one of {', '.join(SERVER_RULES)}"),
        (["--server-set", "beta1=1"], r"server_rule setting 'beta1' \(= '1'\) is unknown; mean has weighting"),
        (["--projection", "0"], "projection is '0'"),
        (["--projection", "²"], "projection is '²'"),
        (["--augmentation", "crop-flip"], r"augmentation is 'crop-flip' and input\.kind 'features'; it needs 'image'"),
        (["--method", "fedmagic"], f"it must be one of {FEDERATED}; `moonfed-export methods`"),
        (["--method", "solo"], "method is 'solo'"),
        (["--classes", "1"], "at least two names"),
        (["--classes", "a,a"], "names that all differ"),
    ],
)
def test_invalid_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, [*TABLE, "--output", str(tmp_path / "b"), *options], catch_exceptions=False)
    assert not (tmp_path / "b").exists()


REGRESSION = ("bundle", "--model", "mlp", "--input", "features:4", "--task", "regression")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "next-token"], "vocabulary is missing; with task 'next-token', give --input and --vocabulary$"),
        ([], "values is missing; with task 'regression', give --input and --values, or for tables --columns"),
        (["--values", "a,a"], "names that all differ"),
        (["--values", ":EUR"], "values is ':EUR'; it must be names, such as price:EUR,area"),
        (["--values", "a", "--horizon", "0"], "horizon is '0'"),
        (
            ["--values", "a,b", "--target-mean", "1,2,3"],
            "target-mean is '1,2,3'; it must be one number, or one for each",
        ),
        (["--values", "a", "--target-std", "0"], "target.deviation is "),
        (["--values", "a", "--set", "loss=hinge"], "loss is 'hinge'"),
    ],
)
def test_invalid_values_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, [*REGRESSION, "--output", str(tmp_path / "b"), *options], catch_exceptions=False)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pad\na\na\n", "token 'a' twice, the second time in place 3"),
        ("pad\n\nb\n", "the token '' in place 2; each must be text that is not empty"),
        ('["", 3]', "the token 3 in place 2"),
        ("pad", "input.vocabulary is"),
    ],
)
def test_a_wrong_vocabulary_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_text(content)
    with pytest.raises(InvalidInput, match=message):
        read_input("tokens:4", str(tmp_path / "v"))


def test_the_vocabulary_comes_from_the_weights_directory(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    words = ("bundle", "--task", "next-token", "--input", "tokens:4", "--model", "gru", "--weights", f"hf:{tmp_path}")
    with refused(InvalidInput, "vocabulary", tmp_path / "tokenizer.json"):
        CliRunner().invoke(app, [*words, "--output", str(tmp_path / "b")], catch_exceptions=False)


@pytest.mark.parametrize("content", ["[PAD]\r\na\r\n b\r\n", '["[PAD]", "a", " b"]'])
def test_a_vocabulary_is_lines_or_a_list(content: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_text(content, newline="")
    assert read_input("tokens:4", str(tmp_path / "v")).vocabulary == ("[PAD]", "a", " b")


def test_values_have_the_units_of_the_options_and_the_scale_of_the_examples(tmp_path: Path) -> None:
    values = np.array([[1, 10], [3, 10]], np.float32).repeat(4, axis=0)
    np.savez(tmp_path / "d.npz", inputs=np.ones((8, 4), np.float32), targets=values)
    options = ("--values", "price:EUR,area", "--data", str(tmp_path / "d.npz"), "--target-std", "5")
    path = str(tmp_path / "b")
    done = CliRunner().invoke(app, [*REGRESSION, *options, "--set", "loss=huber", "--output", path])
    assert "price (EUR): mean 2, standard deviation 5; area: mean 10, standard deviation 5" in done.stderr
    manifest = read_bundle(Path(path)).manifest
    target = TargetSpec(
        kind="values", names=("price", "area"), shape=(2,), units=("EUR", ""), mean=(2, 10), deviation=(5, 5)
    )
    assert manifest.target == target
    shown = CliRunner().invoke(app, ["inspect", path], catch_exceptions=False).output
    assert "regression, delta = 1.0, loss = huber, quantile = 0.5; rmse (lower is better)" in shown
    assert "2: price (EUR): mean 2, standard deviation 5; area: mean 10" in shown


@pytest.mark.parametrize(
    ("text", "options", "task", "shape"),
    [
        ("age,plan,bill\n1,a,5\n2,b,7\n4,a,9\n", ["--target", "bill", "--task", "regression"], "regression", (1,)),
        (
            "age,cat,dog\n1,0,1\n2,1,\n",
            ["--target", "cat", "--target", "dog", "--task", "multilabel"],
            "multilabel",
            (2,),
        ),
    ],
)
def test_the_columns_say_the_task(
    text: str, options: list[str], task: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    arguments = ["columns", str(tmp_path / "t.csv"), *options, "--output", str(tmp_path / "c.json")]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    samples = read_samples(tmp_path / "c.json", {})
    assert (samples.task, samples.target.shape) == (task, shape)


def test_a_bundle_starts_from_weights_whose_options_belong_together(tmp_path: Path) -> None:
    save_file({"0.weight": torch.ones(64, 4), "0.bias": torch.ones(64)}, tmp_path / "w.safetensors")
    options = ("bundle", "--input", "features:4", "--classes", "2", "--model", "mlp", "--output", str(tmp_path / "b"))
    failed = program(*options, "--keep-head")
    assert failed.returncode != 0
    assert "--weights" in failed.stderr
    failed = program(*options, "--weights", str(tmp_path / "w.safetensors"), "--weights-rename", "0")
    assert failed.returncode != 0
    assert "--weights-rename" in failed.stderr
    failed = program(*options, "--weights", "run:digits", "--server", "127.0.0.1:1")
    assert failed.returncode != 0
    assert not (tmp_path / "b").exists()
