"""A user's own samples in experiments, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import preprocessing
from moonfed.experiments.own_data import OwnData
from moonfed.experiments.simulation import from_document
from tests.support.device_samples import draw
from tests.support.refusals import refused
from tests.support.tables import write_csv

ROWS = "plan,age,churn\n" + "".join(
    f"{'plus' if i % 3 else 'basic'},{i},{'yes' if i % 2 else 'no'}\n" for i in range(50)
)


def test_a_table_is_described_read_and_split(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "customers.csv", ROWS)
    split = OwnData(text=str(path), target="churn").read_split("customers")
    assert (len(split.train), len(split.test)) == (40, 10)
    assert split.classes == ("no", "yes")
    assert split.input.table is not None
    assert split.input.table.names == ("plan", "age")
    assert np.bincount(split.test.labels).tolist() == [5, 5]
    found = preprocessing(split)
    assert found.mean[:2] == (0, 0)  # categories are not normalised
    assert found.deviation[:2] == (1, 1)
    assert found.mean[2] == pytest.approx(split.train.inputs[:, 2].mean())


def test_folders_name_the_classes(tmp_path: Path) -> None:
    for index in range(10):
        draw(tmp_path / "pictures" / ("cat" if index % 2 else "dog") / f"{index}.png", (index, 0, 0))
    samples = OwnData(text=str(tmp_path / "pictures"), input="4x6x3").read()
    assert samples.classes == ("cat", "dog")
    assert samples.inputs.shape == (10, 4, 6, 3)
    with refused(InvalidInput, "input"):
        OwnData(text=str(tmp_path / "pictures")).read()
    with refused(InvalidInput, "data"):
        OwnData(text=str(tmp_path / "pictures" / "cat"), input="4x6x3").read()


def test_arrays_describe_themselves(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, inputs=np.zeros((4, 5, 6, 1), np.uint8), labels=np.array([0, 2, 1, 0]))
    split = OwnData(text=str(path)).read_split("own")
    assert (split.input, split.classes) == (InputSpec(kind="image", shape=(5, 6, 1)), ("0", "1", "2"))
    assert OwnData(text=str(path), classes="a,b,c,d").read().classes == ("a", "b", "c", "d")
    np.savez(path, inputs=np.zeros((4, 5, 6), np.uint8), labels=np.zeros(4, int))
    with refused(InvalidInput, "shape of inputs", [4, 5, 6]):
        OwnData(text=str(path)).read()


def test_a_function_is_called_with_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_source.py").write_text(
        "import numpy as np\n\n\ndef load(spec, classes):\n"
        "    return np.zeros((6, *spec.shape), np.float32), np.arange(6) % len(classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    samples = OwnData(text="own_source:load", input="features:3", classes="a,b,c").read()
    assert samples.labels.tolist() == [0, 1, 2, 0, 1, 2]
    with refused(InvalidInput, "classes"):
        OwnData(text="own_source:load", input="features:3").read()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("target", "own.npz"),
        ("columns", "own.npz"),
        ("input", "own.csv"),
        ("classes", "own.csv"),
        ("input", "own.npz"),
        ("ignored_folders", "own.csv"),
    ],
)
def test_an_option_of_another_format_is_named(option: str, text: str) -> None:
    name = "ignore-folder" if option == "ignored_folders" else option
    with pytest.raises(InvalidInput, match=f"{name} is 'x', which does not apply to '{text}'; leave it out"):
        OwnData(text=text, **{option: "x"})  # type: ignore[arg-type]


def test_a_folder_of_texts_needs_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("abab" * 10)
    (tmp_path / "vocabulary.json").write_text('["", "a", "b"]')
    text, vocabulary = str(tmp_path / "texts"), str(tmp_path / "vocabulary.json")
    found = OwnData(text=text, task="next-token", input="tokens:4", vocabulary=vocabulary).read_split("texts")
    assert (len(found.train), len(found.test)) == (8, 2)
    with refused(InvalidInput, "vocabulary"):
        OwnData(text=text, task="next-token", input="tokens:4").read()


def test_classes_name_the_labels_of_a_folder_whatever_labels_the_runs_devices_have(tmp_path: Path) -> None:
    for index in range(10):
        draw(tmp_path / "images" / f"{index}.png", (index, 0, 0))
    write_csv(tmp_path / "labels.csv", "file,cat,dog\n" + "".join(f"{i}.png,{i % 2},1\n" for i in range(10)))
    own: dict[str, Any] = {"task": "multilabel", "input": "4x6x3", "classes": "cat,dog"}
    simulation = from_document({**own, "labels": {"site": "ulm"}})
    assert (simulation.run.labels, simulation.classes) == ({"site": "ulm"}, "cat,dog")
    samples = OwnData(text=str(tmp_path), **own).read()
    assert samples.classes == ("cat", "dog")
    assert samples.known_targets().tolist() == [[index % 2, 1] for index in range(10)]
