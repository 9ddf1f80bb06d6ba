"""The tutorials, command by command, with real programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.export.torchvision_import import import_torchvision
from tests.support.ports import free_port
from tests.support.tutorial import commands, commands_of, execute, follow, save_files, shell_lines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
SHAPES = ("circle", "square", "triangle")
PICTURES = "## From pictures to a model on devices"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_programs: None) -> Iterator[ChildProcesses]:
    monkeypatch.chdir(tmp_path)
    with ChildProcesses(tmp_path / "logs") as programs:
        yield programs


def printed_by(printed: dict[str, str], words: str) -> str:
    """The output of the first command with those words."""
    return next(output for command, output in printed.items() if words in command)


def last_accuracy(evaluated: str) -> float:
    return float(evaluated.strip().splitlines()[-1].split("accuracy ")[1].split()[0])


@pytest.mark.timeout(500)
def test_the_tutorial_on_tables(fleet: ChildProcesses, tmp_path: Path) -> None:
    printed = follow(TUTORIALS / "table.md", fleet, {"8000": str(free_port()), "8001": str(free_port())})
    text = "\n".join(printed.values())
    assert "strength                      categories light, strong" in text
    accuracy = last_accuracy(printed_by(printed, "evaluate"))
    assert accuracy > 0.9
    by_file, predicted, by_server = (printed[command].splitlines() for command in printed if "predict" in command)
    assert [line.rsplit(" ", 1)[0] for line in by_file] == [line.rsplit(" ", 1)[0] for line in by_server]
    assert len(by_file) == 36
    assert by_file[0].startswith("test.csv, row 2  class_0")
    assert predicted[-1] == f"accuracy {accuracy:.4f} on 36 samples"
    assert (tmp_path / "models" / "wine" / "3" / "model.onnx").is_file()


@pytest.mark.timeout(500)
def test_the_tutorial_on_forecasts(fleet: ChildProcesses) -> None:
    printed = follow(TUTORIALS / "forecast.md", fleet, {"--rounds 8": "--rounds 4"}, patient=("client predict",))
    naive = float(printed_by(printed, "naive.py").split()[1])
    evaluated = printed_by(printed, "export evaluate").splitlines()[-1].split()
    assert float(evaluated[evaluated.index("rmse") + 1]) < 0.9 * naive
    assert "model 4 on 3 devices: rmse median" in printed_by(printed, "run evaluate")
    version, forecast = printed_by(printed, "client predict").splitlines()
    assert (version, forecast.split("  ")[0]) == ("version 1 of forecast", "today.csv, row 29")
    steps = [float(value) for value in forecast.split("temperature ")[1].split(", ")]
    assert steps == pytest.approx([20.8, 25.5, 22.1, 18.7], abs=3)  # what follows without noise


@pytest.mark.timeout(500)
def test_the_tutorial_on_pictures(fleet: ChildProcesses) -> None:
    printed = follow(TUTORIALS / "pictures.md", fleet, {"--rounds 15": "--rounds 2"})
    assert "120 samples" in printed_by(printed, "partition")
    version, *answers = printed_by(printed, "predict").splitlines()
    assert version == "version 1 of shapes"
    assert len(answers) == 40
    assert answers[0].startswith("parts/test/circle/")
    assert answers[0].split()[1] in SHAPES


def test_the_readmes_ten_commands_are_those_of_the_tutorial_on_pictures() -> None:
    section = (ROOT / "README.md").read_text().split(PICTURES, 1)[1].split("\n## ", 1)[0]
    *first, predict = shell_lines(section)
    assert len(first) == 10
    assert "release deploy" in first[-1]
    assert predict.startswith("moonfed-client predict")
    assert commands_of(section) == [
        command for command in commands(TUTORIALS / "pictures.md") if command != "python draw.py"
    ]


@pytest.mark.timeout(500)
def test_the_tutorial_on_segmentation(fleet: ChildProcesses) -> None:
    printed = follow(TUTORIALS / "segmentation.md", fleet, {"--rounds 10": "--rounds 1", "epochs=5": "epochs=1"})
    assert "1 skipped" in printed_by(printed, "run evaluate")
    scored, drawn = (printed[command].splitlines() for command in printed if "client predict" in command)
    last, created = (
        float(re.search(r"mean_iou (\S+) on 40 samples", text)[1])  # type: ignore[index]
        for text in (scored[-1], printed_by(printed, "release create"))
    )
    assert last == pytest.approx(created, abs=0.002)  # a pixel may be as much of one class as of another
    assert [line.split("  → ")[0] for line in drawn] == scored[:-1]
    for name in ("000", "039"):
        with Image.open(Path("drawn") / f"{name}.mask.png") as mask:
            assert mask.size == (32, 32)
            assert max(mask.tobytes()) < 3, "positions of classes"
    assert len(list(Path("drawn").iterdir())) == 40


@pytest.mark.timeout(500)
def test_the_tutorial_on_anomalies(fleet: ChildProcesses) -> None:
    """Knocks at any time lie in no plane, so that principal components, of all usual samples, cannot tell defects."""
    printed = follow(TUTORIALS / "anomalies.md", fleet, {"--rounds 8": "--rounds 3"})
    parts = [np.load(Path("parts") / f"device-{number}.npz")["inputs"][..., 0] for number in (1, 2, 3)]
    test = np.load(Path("parts") / "test.npz")
    usual, tested = np.concatenate(parts), test["inputs"][..., 0]
    best = 0.0
    for components in (2, 4, 8, 16, 32):
        pca = PCA(components).fit(usual)
        errors = np.square(pca.inverse_transform(pca.transform(tested)) - tested).mean(axis=1)
        best = max(best, roc_auc_score(test["targets"], errors))
    version, *answers, last = printed_by(printed, "client predict").splitlines()
    assert version == "version 1 of knocks"
    assert float(re.fullmatch(r"auroc (\S+) on 360 samples", last)[1]) > best  # type: ignore[index]
    judged = [line.split() for line in answers]
    assert [line[1] == "anomaly" for line in judged] == [float(line[3]) > float(line[5].rstrip(")")) for line in judged]
    assert sum(line[1] == "anomaly" for line in judged[:180]) == 2


@pytest.mark.timeout(500)
def test_the_tutorial_on_a_model(fleet: ChildProcesses) -> None:
    fewer = {"--set epochs=5": "--set epochs=2", "rounds = 8": "rounds = 3"}
    printed = follow(TUTORIALS / "model.md", fleet, fewer)
    assert "eligible  yes" in printed_by(printed, "check")
    assert last_accuracy(printed_by(printed, "evaluate")) > 0.5
    assert "own.onnx holds the global model of round 3" in printed_by(printed, "onnx own")
    assert re.match(r"digit\.png  \d [01]\.\d{4}, ", printed_by(printed, "export predict"))


@pytest.mark.timeout(500)
def test_the_tutorial_on_a_method(fleet: ChildProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is installed into a folder of its own, not into this interpreter's."""
    path = os.pathsep.join([str(Path("installed").absolute()), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    options = "--quiet --no-deps --no-build-isolation --target installed ."
    printed = follow(
        TUTORIALS / "method.md", fleet, {"pip install .": f"pip install {options}", "rounds = 10": "rounds = 4"}
    )
    assert "confidence-penalty: outputs of low entropy cost." in printed_by(printed, "methods")
    compared = printed_by(printed, "summary.json").splitlines()
    assert [line.split()[0] for line in compared] == ["fedavg", "fedprox", "penalty"]
    assert all(float(line.split()[1]) > 0.5 for line in compared)
    assert json.loads(Path("results/penalty/summary.json").read_text())["accuracy"] == float(compared[2].split()[1])
    assert re.search("penalty += 0.2", printed_by(printed, "inspect penalty-bundle"))


@pytest.mark.timeout(500)
def test_the_tutorial_on_a_fleet_of_boards(fleet: ChildProcesses) -> None:
    here = {"--host 0.0.0.0 --name fleet.example.org": "--name 127.0.0.1", "--rounds 6": "--rounds 2"}
    printed = follow(TUTORIALS / "boards.md", fleet, here, patient=("doctor",))
    assert "torch        ok" in printed_by(printed, "doctor")
    assert re.search(r"board-3 +revoked", printed["moonfed-coordinator device list"])  # the second
    assert "board-1" in printed_by(printed, "device show")
    assert "2 of 2 rounds" in printed_by(printed, "run show digits")
    assert "3 of 3 devices" in printed_by(printed, "release widen")
    assert "revoke device 'board-3'" in " ".join(printed_by(printed, "audit").split())


@pytest.mark.timeout(500)
def test_the_tutorial_on_privacy(fleet: ChildProcesses) -> None:
    """Digits in place of Fashion-MNIST, and 40 parties in place of 600."""
    fewer = {"fashion-mnist": "digits", "parties = 600": "parties = 40", "population=600": "population=40"}
    shorter = {"cohort = 60": "cohort = 20", "rounds = 30": "rounds = 2", " --data data": ""}
    printed = follow(TUTORIALS / "privacy.md", fleet, {**fewer, **shorter, "delta=1e-4": "delta=1e-3"})
    compared = printed_by(printed, "compare").splitlines()
    assert len(compared) == 5
    private = [json.loads(Path(f"private/clip_norm={clip}/summary.json").read_text()) for clip in ("0.3", "1", "3")]
    assert [found["rounds"] for found in private] == [2, 2, 2]
    assert {found["recipe"]["privacy"]["epsilon"] for found in private} == {2}
    assert not any("train_loss" in line for line in Path("private/clip_norm=1/results.jsonl").read_text().splitlines())


def pretrained_mobilenet(cache: Path) -> None:
    """Put weights where torch finds those that it has downloaded: random ones, with statistics of noise."""
    models = import_torchvision().models
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        network = models.get_model("mobilenet_v3_small", weights=None)
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 1.0
        network.train()(torch.randn(32, 3, 64, 64))
    name = models.get_model_weights("mobilenet_v3_small").DEFAULT.url.rpartition("/")[2]
    (cache / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(network.state_dict(), cache / "hub" / "checkpoints" / name)


@pytest.mark.timeout(500)
def test_the_tutorial_on_a_pretrained_model(
    fleet: ChildProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    pretrained_mobilenet(tmp_path / "torch")
    save_files(TUTORIALS / "pictures.md", Path(), {})
    execute("python draw.py", fleet)
    assert len(shell_lines((TUTORIALS / "pretrained.md").read_text())) == 12  # ten commands, besides two to look
    printed = follow(TUTORIALS / "pretrained.md", fleet, {"--rounds 8": "--rounds 2"})
    inspected = printed_by(printed, "inspect")
    assert "shared 2 tensors, 3,075 numbers" in inspected
    assert "frozen 208 tensors, 1,529,968 numbers, 6.1 MB" in inspected
    run("moonfed-coordinator", "run", "weights", "shapes", "--output", "shared.safetensors")
    assert Path("shared.safetensors").stat().st_size == 12_460
    assert printed_by(printed, "predict").startswith("version 1 of shapes\n")


@pytest.mark.timeout(500)
def test_the_tutorial_on_personal_heads(fleet: ChildProcesses) -> None:
    save_files(TUTORIALS / "pictures.md", Path(), {})
    execute("python draw.py", fleet)
    printed = follow(TUTORIALS / "personal-heads.md", fleet, {"--rounds 10": "--rounds 2"})
    assert "model 2 on 3 devices: accuracy median" in printed_by(printed, "run evaluate")
    assert printed_by(printed, "predict").startswith("version 1 of heads\n")
