"""The commands that build, inspect and describe bundles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.bundle.files import read_bundle
from moonfed.cli.program import app
from moonfed.errors import AlreadyExists, InvalidInput
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
