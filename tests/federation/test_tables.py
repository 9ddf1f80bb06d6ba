"""One table from partition to classification with real programs, and bad cells in every command."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from moonfed.experiments.child_processes import our_program, run
from moonfed.sandbox.policy import available_level

from .conftest import PATIENCE, Federation

pytestmark = pytest.mark.slow

DEVICES = ("cam-1", "cam-2")
SECRET = "Methuselah"
RECIPE = """model = "mlp"
augmentation = false
parties = 2
rounds = 1
partition = "iid"
[settings]
epochs = 2
batch_size = 16
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Customers of two plans, who leave if they are old or have the plan `basic`."""
    generator = np.random.default_rng(3)
    with (tmp_path / "customers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", "age", "plan", "churn"])
        for number in range(300):
            age, plan = float(generator.uniform(18, 90)), ("basic", "plus")[generator.integers(2)]
            writer.writerow([f"c{number}", f"{age:.1f}", plan, "yes" if age > 60 or plan == "basic" else "no"])
    return tmp_path / "customers.csv"


def spoiled(path: Path, name: str) -> Path:
    """Copy a table with a bad cell in row 7."""
    lines = path.read_text().splitlines()
    cells = lines[6].split(",")
    lines[6] = ",".join([cells[0], SECRET, *cells[2:]])
    (path.parent / name).write_text("\n".join(lines) + "\n")
    return path.parent / name


def fail(*command: str) -> str:
    """Run a program that must reject its input; return what it says."""
    done = subprocess.run([our_program(command[0]), *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 2, (command, done.returncode, done.stderr)
    assert done.stdout == ""
    return done.stderr


@pytest.mark.timeout(500)
def test_a_table_goes_through_every_command_and_a_bad_cell_through_none(
    federation: Federation, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    columns, parts, bundle = tmp_path / "columns.json", tmp_path / "parts", tmp_path / "bundle"
    (tmp_path / "recipe.toml").write_text(RECIPE)
    described = ("--target", "churn", "--ignore", "customer", "--output", str(columns))
    run("moonfed-export", "columns", str(table), *described)
    split = ("--devices", "2", "--partition", "iid", "--output", str(parts))
    run("moonfed-experiments", "partition", str(table), "--columns", str(columns), *split)
    settings = [word for text in ("epochs=10", "batch_size=16", "learning_rate=0.05") for word in ("--set", text)]
    run("moonfed-export", "bundle", "--model", "mlp", "--columns", str(columns), *settings, "--output", str(bundle))

    federation.serve()
    federation.enrol(*DEVICES)
    for number, name in enumerate(DEVICES, start=1):
        federation.start_device(name, data=str(parts / f"device-{number}.csv"))
    federation.start_run(bundle, "churn", "--rounds", "3", "--minimum-devices", "2")
    test, operator = str(parts / "test.csv"), federation.operator
    run("moonfed-export", "evaluate", "churn", "--data", test, "--follow", *operator)
    federation.until_finished("churn")
    accuracy = federation.rounds("churn")[-1].metrics["accuracy"]
    assert accuracy > 0.9

    model, models = str(tmp_path / "churn.onnx"), str(tmp_path / "models")
    run("moonfed-export", "onnx", "churn", "--data", test, "--output", model, *operator)
    published = ("--name", "churn", "--output", models, "--data", test)
    run("moonfed-export", "repository", "churn", *published, *operator)
    card = (tmp_path / "models" / "churn" / "3" / "MODEL_CARD.md").read_text()
    assert f"{accuracy:.4f}" in card
    classified = run("moonfed-export", "predict", test, "--file", model, "--top", "1").splitlines()
    with Path(test).open(newline="") as file:
        answers = [row["churn"] for row in csv.DictReader(file)]
    correct = sum(line.split()[-2] == answer for line, answer in zip(classified, answers, strict=True))
    assert correct / len(answers) == pytest.approx(accuracy)
    run("moonfed-export", "release", "create", "churn", "--data", test, "--name", "churn", *operator)
    run("moonfed-coordinator", "release", "deploy", "churn", "--version", "1", *operator)
    federation.until_log("cam-1", "version 1 of model churn: installed")
    predicting = ("--state", str(federation.directory / "cam-1"), "--sandbox", available_level())
    predicted = json.loads(run("moonfed-client", "predict", test, *predicting, "--json"))
    assert predicted["accuracy"] == pytest.approx(accuracy)
    simulated = ("--set", f"columns={columns}", "--output", str(tmp_path / "simulated"))
    run("moonfed-experiments", "simulate", str(tmp_path / "recipe.toml"), "--data", str(table), *simulated)

    bad, all_bad = str(spoiled(Path(test), "bad.csv")), str(spoiled(table, "all-bad.csv"))
    answer = f"bad.csv, row 7, column age: '{SECRET}' is not a number (docs: errors/invalid-input)\n"
    for command in (
        ("moonfed-export", "columns", all_bad, *described),
        ("moonfed-experiments", "partition", all_bad, "--columns", str(columns), "--output", str(tmp_path / "new")),
        ("moonfed-experiments", "simulate", str(tmp_path / "recipe.toml"), "--data", all_bad,
         "--set", f"columns={columns}", "--output", str(tmp_path / "new")),
        ("moonfed-export", "evaluate", "churn", "--data", bad, *operator),
        ("moonfed-export", "onnx", "churn", "--data", bad, "--output", model, *operator),
        ("moonfed-export", "repository", "churn", "--data", bad, "--name", "new", "--output", models, *operator),
        ("moonfed-export", "release", "create", "churn", "--data", bad, "--name", "new", *operator),
        ("moonfed-export", "follow", "churn", "--data", bad, "--name", "new", "--repository", models, *operator),
        ("moonfed-export", "predict", bad, "--file", model),
        ("moonfed-client", "predict", bad, *predicting),
    ):  # fmt: skip
        said = fail(*command)
        assert said.startswith(f"{command[0]}: "), command
        assert said.endswith(answer), (command, said)
        assert said.count("\n") == 1, said


def test_a_device_declines_a_bad_cell_without_naming_its_value(
    federation: Federation, table: Path, tmp_path: Path
) -> None:
    columns, bundle = tmp_path / "columns.json", tmp_path / "bundle"
    run("moonfed-export", "columns", str(table), "--target", "churn", "--ignore", "customer", "--output", str(columns))
    run("moonfed-export", "bundle", "--model", "mlp", "--columns", str(columns), "--output", str(bundle))
    federation.serve()
    federation.enrol("cam-1")
    federation.start_device("cam-1", data=str(spoiled(table, "bad.csv")))
    federation.start_run(bundle, "churn", "--rounds", "1", "--minimum-devices", "1")
    federation.until_log("cam-1", f"row 7, column age: '{SECRET}' is not a number")
    answer, deadline = "", time.monotonic() + PATIENCE
    while "row 7, column age: a value is not a number" not in answer:
        assert time.monotonic() < deadline, answer
        answer = run("moonfed-coordinator", "run", "show", "churn", "--json", *federation.operator)
    assert SECRET not in answer + federation.log("coordinator")
