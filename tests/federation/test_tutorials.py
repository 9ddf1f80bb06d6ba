"""The tutorials, command by command, with real programs."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from moonfed.experiments.child_processes import ChildProcesses
from tests.support.tutorial import commands, commands_of, execute, execute_patiently, shell_lines

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
SHAPES = ("circle", "square", "triangle")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_programs: None) -> Iterator[ChildProcesses]:
    monkeypatch.chdir(tmp_path)
    with ChildProcesses(tmp_path / "logs") as programs:
        yield programs


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@pytest.mark.timeout(500)
def test_the_tutorial_on_tables(fleet: ChildProcesses, tmp_path: Path) -> None:
    http, grpc, printed = free_port(), free_port(), dict[str, str]()
    for command in commands(TUTORIALS / "table.md"):
        adapted = command.replace("8000", http).replace("8001", grpc)
        if command.startswith("moonfed-coordinator serve"):
            adapted = adapted.replace(" &", " --fleet-port 0 --enrolment-port 0 &")
        run = execute_patiently if "predict" in command else execute
        printed[command] = run(adapted, fleet)
    text = "\n".join(printed.values())
    assert "strength                      categories light, strong" in text
    evaluated = next(output for command, output in printed.items() if "evaluate" in command)
    accuracy = float(evaluated.strip().splitlines()[-1].split("accuracy ")[1].split()[0])
    assert accuracy > 0.9
    by_file, predicted, by_server = (
        printed[command].splitlines() for command in printed if "classify" in command or "predict" in command
    )
    assert [line.rsplit(" ", 1)[0] for line in by_file] == [line.rsplit(" ", 1)[0] for line in by_server]
    assert len(by_file) == 36
    assert by_file[0].startswith("test.csv, row 2  class_0")
    assert predicted[-1] == f"accuracy {accuracy:.4f} on 36 samples"
    assert (tmp_path / "models" / "wine" / "3" / "model.onnx").is_file()


def draw_pictures(folder: Path, count: int) -> None:
    """Draw shapes of random colours, sizes and places, and leave a file that is no image."""
    numbers = random.Random(1)
    for index in range(count):
        shape, radius = SHAPES[index % 3], numbers.randint(12, 24)
        x, y = (numbers.randint(radius, 63 - radius) for _ in range(2))
        image = Image.new("RGB", (64, 64), tuple(numbers.choices(range(110), k=3)))
        colour, pencil = tuple(numbers.choices(range(150, 255), k=3)), ImageDraw.Draw(image)
        if shape == "circle":
            pencil.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        elif shape == "square":
            pencil.rectangle((x - radius, y - radius, x + radius, y + radius), fill=colour)
        else:
            pencil.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=colour)
        (folder / shape).mkdir(parents=True, exist_ok=True)
        image.save(folder / shape / f"{index}.png")
    (folder / "circle" / "Thumbs.db").write_bytes(b"previews")


@pytest.mark.timeout(500)
def test_ten_commands_of_the_readme_bring_a_model_from_pictures_to_devices(fleet: ChildProcesses) -> None:
    section = (
        (ROOT / "README.md").read_text().split("## From pictures to a model on devices", 1)[1].split("\n## ", 1)[0]
    )
    *first, predict = shell_lines(section)
    assert len(first) == 10
    assert "release deploy" in first[-1]
    assert predict.startswith("moonfed-client predict")
    draw_pictures(Path("pictures"), 180)
    printed = dict[str, str]()
    for command in commands_of(section):
        adapted = command
        if command.startswith("moonfed-coordinator serve"):
            adapted = command.replace(" &", " --fleet-port 0 --enrolment-port 0 &")
        adapted = adapted.replace("--rounds 15", "--rounds 2")
        run = execute_patiently if "predict" in command else execute
        printed[command] = run(adapted, fleet)
    version, *answers = list(printed.values())[-1].splitlines()
    assert version == "version 1 of shapes"
    assert len(answers) == 12
    assert answers[0].startswith("parts/test/circle/")
    assert answers[0].split()[1] in SHAPES
