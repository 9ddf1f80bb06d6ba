"""Texts and sounds from three devices each, with different shares, to releases that the devices predict with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from moonfed.experiments.child_processes import run

from .conftest import Federation

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "data.md"
READERS, EARS = ("reader-1", "reader-2", "reader-3"), ("ear-1", "ear-2", "ear-3")
WORDS, PITCHES = ("low", "middle", "high"), (400, 900, 2000)  # Hz
SHARES = ((30, 10, 5), (5, 30, 10), (10, 5, 30))  # sounds of each word on each device
RATE, LENGTH = 8000, 1000
TOPIC, HELD_OUT = 25000, 8000  # characters


def write_texts(directory: Path) -> None:
    """Write a part of Python's help for each device and one for testing, and each character's line of a vocabulary."""
    text = "".join(topics[name] for name in sorted(topics))
    plain = re.sub(r"[^ -~\n]", "", text)
    for number, name in enumerate((*READERS, "test")):
        folder = directory / "texts" / name
        folder.mkdir(parents=True)
        start = number * TOPIC
        (folder / "help.txt").write_text(plain[start : start + (TOPIC if name in READERS else HELD_OUT)])
    command = next(line for line in DOCUMENT.read_text().splitlines() if "vocabulary.json" in line and "python" in line)
    code = command.split('"', 1)[1].rsplit('"', 1)[0]
    subprocess.run([sys.executable, "-c", code], cwd=directory, check=True)


def write_sounds(directory: Path) -> None:
    """Write chirps about three pitches, of random slope, loudness and start, in noise."""
    generator = np.random.default_rng(0)
    time = np.arange(LENGTH) / RATE
    for name, counts in zip((*EARS, "test"), (*SHARES, (20, 20, 20)), strict=True):
        words = np.repeat(np.arange(3), counts)
        each = (len(words), 1)
        pitch = np.array(PITCHES)[words, None] * generator.uniform(0.9, 1.1, each)
        phase = pitch * time + generator.uniform(-400, 400, each) * time**2 + generator.uniform(0, 1, each)
        sounds = generator.uniform(0.5, 1, each) * np.sin(2 * np.pi * phase) + generator.normal(
            0, 0.2, (each[0], LENGTH)
        )
        np.savez(directory / f"{name}.npz", inputs=sounds[:, :, None].astype(np.float32), labels=words)


def unigram_perplexity(directory: Path) -> float:
    """Return that of the frequencies of characters in all training texts, each counted once more, on the test."""
    vocabulary = json.loads((directory / "vocabulary.json").read_text())
    trained = "".join((directory / "texts" / name / "help.txt").read_text() for name in READERS)
    counts = {token: trained.count(token) + 1 for token in vocabulary[1:]}
    tested = (directory / "texts" / "test" / "help.txt").read_text()
    return float(np.exp(-np.mean(np.log([counts[token] / sum(counts.values()) for token in tested]))))


def released(federation: Federation, name: str, test: Path) -> dict[str, float]:
    federation.until_finished(name)
    options = ("--best", "--name", name, "--data", str(test), "--json", *federation.operator)
    run("moonfed-export", "evaluate", name, "--data", str(test), *federation.operator)
    created: dict[str, float] = json.loads(run("moonfed-export", "release", "create", name, *options))
    run("moonfed-coordinator", "release", "deploy", name, "--version", "1", *federation.operator)
    return created


def predict(federation: Federation, device: str, *arguments: str) -> str:
    federation.until_log(device, ": installed")
    return run("moonfed-client", "predict", *arguments, "--state", str(federation.directory / device), "--threads", "1")


@pytest.mark.timeout(300)
def test_texts_and_sounds_of_devices_become_releases_that_predict(federation: Federation, tmp_path: Path) -> None:
    write_texts(tmp_path)
    write_sounds(tmp_path)
    adam = ("--optimiser", "adam", "--set", "learning_rate=0.01", "--set", "epochs=3", "--set", "batch_size=16")
    words = ("--task", "next-token", "--input", "tokens:64", "--vocabulary", str(tmp_path / "vocabulary.json"))
    run("moonfed-export", "bundle", *words, "--model", "gru", *adam, "--output", str(tmp_path / "help"))
    sounds = ("--input", f"series:{LENGTH}x1", "--classes", ",".join(WORDS), "--model", "cnn1d", *adam[:2], *adam[4:])
    run("moonfed-export", "bundle", *sounds, "--output", str(tmp_path / "keywords"))
    federation.serve()
    federation.enrol(*READERS, *EARS)
    for name in (*READERS, *EARS):
        data = tmp_path / (f"texts/{name}" if name in READERS else f"{name}.npz")
        federation.start_device(name, data=str(data))
    for name in ("help", "keywords"):
        federation.start_run(tmp_path / name, name, "--rounds", "4", "--minimum-devices", "3")
    vocabulary = len(json.loads((tmp_path / "vocabulary.json").read_text()))
    test = tmp_path / "texts" / "test"
    perplexity = released(federation, "help", test)["perplexity"]
    assert perplexity < 0.7 * unigram_perplexity(tmp_path) < 0.4 * vocabulary

    (tmp_path / "prompt.txt").write_text("the value of the expressio")
    assert (
        predict(federation, "reader-1", str(tmp_path / "prompt.txt")).splitlines()[1].split("  ")[1].startswith("'n' ")
    )
    told = json.loads(predict(federation, "reader-2", str(test), "--json"))
    assert told["perplexity"] == pytest.approx(perplexity, rel=1e-4)
    assert released(federation, "keywords", tmp_path / "test.npz")["accuracy"] > 0.8
    heard = json.loads(predict(federation, "ear-3", str(tmp_path / "test.npz"), "--json"))["predictions"]
    assert np.mean([one["class"] == WORDS[place // 20] for place, one in enumerate(heard)]) > 0.8
