"""moonfed-export as a process: output and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.bundle import read_bundle
from moonfed.errors import InvalidInput
from moonfed.export.bundle_recipe import read_settings
from moonfed.export.cli.program import app
from moonfed.export.methods import METHODS
from moonfed.server_rules import SERVER_RULES, read_server_rule
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.signing.bundle_signature import signed_by
from moonfed.signing.key_files import read_trust

pytestmark = pytest.mark.usefixtures("forked_programs")

TABLE = ("bundle", "--model", "mlp", "--input", "features:4", "--classes", "no,yes")


def program(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path("proto").absolute()), str(Path.cwd())])
    return subprocess.run(
        [sys.executable, "-c", "from moonfed.export.cli.program import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
    )


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
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("b.zip holds bundle 'b', sha256 ")
    manifest = read_bundle(tmp_path / "b.zip").manifest
    assert (manifest.name, manifest.model, manifest.classes) == ("b", "mine:model", ("0", "1", "2"))
    assert (manifest.training.hyperparameters["mu"], manifest.previous_models) == (1.0, 2)


def test_errors_are_one_sentence_on_stderr_with_an_exit_code(tmp_path: Path) -> None:
    done = program(*TABLE, "--set", "mu=1", "--output", str(tmp_path / "b"))
    assert done.returncode == 2
    assert done.stderr.startswith("moonfed-export: setting 'mu' (= '1') is unknown; fedavg has batch_size, epochs")
    assert done.stderr.count("\n") == 1
    done = program("inspect", str(tmp_path / "absent"))
    assert (done.returncode, done.stdout) == (3, "")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from moonfed.export.cli.program import app; "
        "app({!r}, standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    for arguments in (["--help"], ["bundle", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_program_help_has_examples() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "Example: moonfed-export bundle --model" in shown


@pytest.mark.parametrize(
    "command",
    [
        "bundle",
        "methods",
        "inspect",
        "sign",
        "evaluate",
        "onnx",
        "repository",
        "follow",
        "roll-back",
        "serve",
        "classify",
    ],
)
def test_every_command_help_has_an_example(command: str) -> None:
    assert f"moonfed-export {command} " in " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())


def test_a_first_bundle_is_signed_with_a_key_made_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, path = tmp_path / "keys", str(tmp_path / "b")
    monkeypatch.setenv("MOONFED_KEYS", str(keys))
    first = program(*TABLE, "--output", path)
    (key,) = keys.glob("key-*.pem")
    assert first.stderr == f"moonfed-export: created the signing key {key}; keep a copy of {keys} in a safe place\n"
    assert program(*TABLE, "--output", path).stderr == ""
    trust = read_trust(keys / "trust.json").verify()
    assert read_bundle(Path(path), signed_by(trust)).manifest.name == "b"
    shown = json.loads(program("inspect", path, "--json").stdout)["signature"]
    assert shown["keys"] == [key.id for key in trust.keys]
    key.chmod(0o644)
    exposed = program(*TABLE, "--output", path)
    assert (exposed.returncode, "it must be private: chmod 600" in exposed.stderr) == (2, True)


def test_keys_are_created_shown_rotated_and_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")

    def call(*words: str) -> str:
        return runner.invoke(app, [*words], catch_exceptions=False).output

    call(*TABLE, "--output", path, "--bundle-version", "3")
    assert "signature version 3 by " in " ".join(call("inspect", path).split())
    monkeypatch.setenv("MOONFED_KEYS", str(tmp_path / "keys"))
    made = json.loads(call("keys", "create", "--json"))
    assert Path(made["key"]).parent == tmp_path / "keys"
    assert "version 1, threshold 1" in call("keys", "show")
    assert call("sign", path, "--bundle-version", "4") == f"{path} is signed as version 4\n"
    before = read_trust(Path(made["trust"])).verify()
    assert read_bundle(Path(path), signed_by(before))
    assert "is version 2 of the trust file; devices learn of it with the next bundle" in call("keys", "rotate")
    shown = json.loads(call("keys", "show", "--json"))
    assert (shown["version"], [key["private"] for key in shown["keys"]]) == (2, [True])
    assert json.loads(call("sign", path, "--renew", "--json", "--bundle-version", "5"))["version"] == 5
    after = read_trust(Path(made["trust"])).verify()
    assert read_bundle(Path(path), signed_by(before))
    assert read_bundle(Path(path), signed_by(after))
    joint = call("keys", "rotate", "--add", made["key"].replace(".pem", ".pub"), "--threshold", "2")
    assert "is version 3" in joint  # both private keys are here
    other = str(tmp_path / "other")
    stranger = json.loads(call("keys", "create", "--keys", other, "--json"))
    pending = call("keys", "rotate", "--add", stranger["key"].replace(".pem", ".pub"), "--threshold", "3")
    assert "trust-4.json needs more signatures (version 4 of the trust file is not signed by 3 of its" in pending
    assert "is version 4" in call("sign", str(tmp_path / "keys" / "trust-4.json"), "--sign", stranger["key"])


def test_inspect_describes_a_bundle(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")
    built = runner.invoke(app, [*TABLE, "--name", "table", "--output", path, "--json"], catch_exceptions=False)
    shown = runner.invoke(app, ["inspect", path], catch_exceptions=False).output
    document = json.loads(runner.invoke(app, ["inspect", path, "--json"], catch_exceptions=False).output)
    assert json.loads(built.output)["sha256"] == document["sha256"]
    # 4*64+64 + 64*64+64 + 64*64+64 + 64*256+256 + 256*2+2
    assert document["parameters"] == 25_794
    assert document["classes"] == ["no", "yes"]
    assert "mlp, 25,794 parameters in 10 tensors" in shown
    assert "features, float32 4" in shown
    assert "2: no, yes" in shown


def test_a_bundles_rule_augmentation_and_head_can_be_chosen_and_inspected(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")
    options = ("--method", "fedssc", "--projection", "none", "--augmentation", "crop-flip", "--set", "views=3")
    rule = ("--server-rule", "fedavgm", "--server-set", "damped=true", "--server-set", "server_momentum=0.7")
    pictures = ("bundle", "--input", "8x8x1", "--classes", "10", "--output", path)
    runner.invoke(app, [*pictures, *options, *rule], catch_exceptions=False)
    manifest = read_bundle(Path(path)).manifest
    assert SERVER_RULES.build(manifest.server_rule) == FedAvgM(damped=True, server_momentum=0.7)
    assert (manifest.augmentation, manifest.training.views) == ("crop-flip", 3)
    assert manifest.downlink["prototypes"][1].shape == (10, 84)  # without a head z is the encoder's
    lines = runner.invoke(app, ["inspect", path], catch_exceptions=False).output.splitlines()
    shown = {tuple(" ".join(line.split()).split(" ", 1)) for line in lines}
    assert ("augmentation", "crop-flip, 3 views of each sample") in shown
    assert ("server", "rule fedavgm, damped = true, server_momentum = 0.7, weighting = samples") in shown
    assert ("mu_glob", "= 1 until round 5, linearly to 0.0001 in round 100") in shown
    assert ("down", "prototypes, 850 numbers, each of 1 device") in shown
    assert ("up", "class_means, 850 numbers") in shown


def test_methods_lists_every_method_and_rule_with_all_settings() -> None:
    runner = CliRunner()
    document = json.loads(runner.invoke(app, ["methods", "--json"], catch_exceptions=False).output)
    assert list(document["methods"]) == list(METHODS)
    assert list(document["server_rules"]) == list(SERVER_RULES)
    for name, entry in document["methods"].items():
        chosen = read_settings(name, entry["settings"])  # every setting is known, and its default is what is listed
        assert chosen == read_settings(name, {})
    assert document["methods"]["moon"]["settings"] == {
        "mu": 5.0,
        "tau": 0.5,
        "previous_models": 1,
        "learning_rate": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "epochs": 10,
        "batch_size": 64,
        "views": 0,
    }
    assert [name for name, entry in document["methods"].items() if not entry["federated"]] == ["solo"]
    for name, entry in document["server_rules"].items():
        assert read_server_rule({"name": name, **entry["settings"]}) == SERVER_RULES[name]()
    shown = runner.invoke(app, ["methods"], catch_exceptions=False).output
    assert all(f"  {name}: " in shown for name in (*METHODS, *SERVER_RULES))
    assert "    mu=5  tau=0.5  previous_models=1\n" in shown


def test_help_names_every_method() -> None:
    shown = " ".join(CliRunner().invoke(app, ["bundle", "--help"]).output.split()).replace("- ", "-")
    assert f"{', '.join(METHODS)}." in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "32x32"], "input is '32x32'; it must be HEIGHTxWIDTHxCHANNELS"),
        (["--input", "0x8x3"], r"input.shape is \(0, 8, 3\)"),
        (["--mean", "half"], "mean is 'half'; it must be numbers with commas"),
        (["--set", "mu"], "--set is 'mu'; it must be KEY=VALUE"),
        (["--server-set", "beta1"], "--server-set is 'beta1'; it must be KEY=VALUE"),
        (["--server-rule", "median"], f"server_rule is 'median'; it must be one of {', '.join(SERVER_RULES)}"),
        (["--server-set", "beta1=1"], r"server_rule setting 'beta1' \(= '1'\) is unknown; mean has weighting"),
        (["--projection", "0"], "projection is '0'; it must be a whole number from 1, or none"),
        (["--projection", "²"], "projection is '²'; it must be a whole number"),
        (["--augmentation", "crop-flip"], r"augmentation is 'crop-flip' and input\.kind 'features'; it needs 'image'"),
        (["--method", "fedmagic"], "it must be one of fedavg, .*; `moonfed-export methods` lists"),
        (["--method", "solo"], "method is 'solo', whose devices exchange nothing.* `moonfed-experiments simulate`"),
        (["--classes", "1"], "at least two names"),
        (["--classes", "a,a"], "names that all differ"),
    ],
)
def test_invalid_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, [*TABLE, "--output", str(tmp_path / "b"), *options], catch_exceptions=False)
    assert not (tmp_path / "b").exists()
