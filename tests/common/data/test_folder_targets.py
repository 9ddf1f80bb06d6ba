"""Images with masks, rows of a table or none, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, UNKNOWN, TargetSpec
from moonfed.data.bad_cells import UnusableData
from moonfed.data.data_set import DataSet
from moonfed.data.folder import FolderSource
from moonfed.data.folder_targets import holds_targets
from moonfed.data.source import IGNORED
from moonfed.errors import InvalidInput, NotFound
from tests.support.device_samples import COLOUR, draw
from tests.support.refusals import refused
from tests.support.tables import write_csv

MASKS = TargetSpec(kind="mask", names=("ground", "crop", "weed"), shape=(4, 6))
LABELS = TargetSpec(kind="labels", names=("cat", "dog"), shape=(2,))
VALUES = TargetSpec(kind="values", names=("age",), shape=(1,))
ROWS = np.repeat(np.array([[0, 1, 2, UNKNOWN]], np.uint8).T, 6, axis=1)  # 4 x 6


def read(folder: Path, target: TargetSpec) -> DataSet:
    return FolderSource(folder).read(COLOUR, target)


def mask(path: Path, pixels: np.ndarray, mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if mode == "P":
        image.putpalette([value for index in range(256) for value in (255 - index, index, 7)])
    (image if mode in ("L", "P") else image.convert(mode)).save(path)


@pytest.fixture
def field(tmp_path: Path) -> Path:
    """Two images with masks, of which the second has the colours of a palette."""
    draw(tmp_path / "images" / "a.jpg", (0, 0, 250))
    draw(tmp_path / "images" / "far" / "b.png", (0, 0, 250), (60, 40))
    mask(tmp_path / "masks" / "a.png", np.kron(ROWS, np.ones((2, 2), np.uint8)))
    mask(tmp_path / "masks" / "far" / "b.png", np.kron(ROWS, np.ones((10, 10), np.uint8)), "P")
    return tmp_path


def test_masks_are_read_as_classes_and_resized_without_mixing_them(field: Path) -> None:
    samples = read(field, MASKS)
    assert samples.inputs.shape == (2, 4, 6, 3)
    assert samples.known_targets().dtype == np.uint8
    assert samples.known_targets().tolist() == [ROWS.tolist()] * 2
    assert len(FolderSource(field).read(COLOUR, MASKS, labels=IGNORED)) == 2


def test_images_and_masks_without_each_other_are_counted(field: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw(field / "images" / "c.jpg", (1, 1, 1))
    mask(field / "masks" / "d.png", ROWS)
    (field / "masks" / "a.png").write_bytes(b"no picture")
    assert [file.name for file in read(field, MASKS).files] == ["b.png"]
    notes = [record.message for record in caplog.records]
    assert [note.split(" in ")[0] for note in notes] == ["1 image", "1 mask", "1 of 2 files"]


@pytest.mark.parametrize(
    ("pixels", "mode", "public"),
    [
        (ROWS, "L", "a mask has 6x4 pixels and its image 12x8; they must be equal"),
        (np.full((8, 12), 3, np.uint8), "L", "a mask has a pixel of class 3; it must be 0 to 2, or 255"),
        (np.zeros((8, 12), np.uint8), "RGB", "a mask has mode RGB; it must be an 8-bit palette or grey image"),
        (np.zeros((8, 12), np.uint8), "LA", "a mask has mode LA"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(field: Path, pixels: np.ndarray, mode: str, public: str) -> None:
    mask(field / "masks" / "a.png", pixels, mode)
    with pytest.raises(UnusableData, match=r"masks/a\.png") as error:
        read(field, MASKS)
    assert error.value.public.startswith(public)


@pytest.mark.parametrize(("folder", "needed"), [("images", "'images'"), ("masks", "'masks'")])
def test_a_missing_folder_is_named(field: Path, folder: str, needed: str) -> None:
    (field / folder).rename(field / "other")
    with pytest.raises(InvalidInput, match=f"has no folder {needed}"):
        read(field, MASKS)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for name in ("a.png", "b.jpg", "c.png"):
        draw(tmp_path / "images" / name, (0, 250, 0))
    return tmp_path


def test_labels_are_those_of_the_images_rows(pets: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_csv(pets / "labels.csv", "dog,file,cat\n1,b.jpg,0\n,images/a.png,1\n")
    samples = read(pets, LABELS)
    assert [file.name for file in samples.files] == ["a.png", "b.jpg"]
    assert samples.known_targets().tolist() == [[1, UNKNOWN], [0, 1]]
    assert "1 image in" in caplog.text


def test_values_are_those_of_the_images_rows(pets: Path) -> None:
    write_csv(pets / "values.csv", "file,age\nc.png,1.5\na.png,-2\nb.jpg,0\n")
    assert read(pets, VALUES).known_targets().tolist() == [[-2], [0], [1.5]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("file,age\na.png,old\n", "row 2, column age: 'old' is not a number"),
        ("file,age\na.png,\n", "row 2, column age: the value is missing"),
        ("file,age\na.png,1\nz.png,1\n", "row 3, column file: 'z.png' is no file in images"),
        ("file,age\na.png,1\na.png,1\n", "row 3, column file: 'a.png' is in two rows"),
        ("name,age\na.png,1\n", "lacks the column 'file', which the task needs"),
        ("file,size\na.png,1\n", "lacks the column 'age', which the task needs"),
    ],
)
def test_a_row_that_does_not_fit_is_named(pets: Path, text: str, sentence: str) -> None:
    write_csv(pets / "values.csv", text)
    with pytest.raises(UnusableData, match=sentence):
        read(pets, VALUES)


def test_a_missing_table_is_named(pets: Path) -> None:
    with refused(NotFound, "targets"):
        read(pets, LABELS)


def test_all_images_are_read_where_the_image_is_the_target(pets: Path) -> None:
    assert read(pets, NO_TARGET).known_targets().shape == (3, 0)
    draw(pets / "good" / "d.png", (0, 0, 0))
    draw(pets / "loose.png", (0, 0, 0))
    samples = read(pets, NO_TARGET)
    found = {file.name: int(known) for file, known in zip(samples.files, samples.known_targets(), strict=True)}
    assert found == {"a.png": 1, "b.jpg": 1, "c.png": 1, "d.png": 0, "loose.png": UNKNOWN}
    assert FolderSource(pets).read(COLOUR, NO_TARGET, labels=IGNORED).targets is None


def test_a_change_of_any_file_is_noticed(pets: Path) -> None:
    source = FolderSource(pets)
    before = source.fingerprint()
    write_csv(pets / "labels.csv", "file,cat,dog\na.png,1,1\n")
    assert source.fingerprint() != before


TOKENS = InputSpec(kind="tokens", shape=(4,), vocabulary=("", "a", "b", "ab", " ", "\n"))
NEXT = TargetSpec(kind="next", shape=(0,))


def text(folder: Path, name: str, content: str | bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def test_texts_become_windows_of_the_longest_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text(tmp_path, "one.txt", "abba ab\n")
    text(tmp_path, "more/two.txt", "aab")
    text(tmp_path, "table.csv", "a")
    text(tmp_path, "latin.txt", b"\xe4")
    samples = FolderSource(tmp_path).read(TOKENS, NEXT)
    found = sorted((file.name, row.tolist()) for file, row in zip(samples.files, samples.inputs, strict=True))
    assert found == [("one.txt", [3, 2, 1, 4]), ("one.txt", [3, 5, 0, 0]), ("two.txt", [1, 3, 0, 0])]
    assert samples.known_targets().shape == (3, 0)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("content", "place"), [("abc", "line 1, place 3"), ("a\nab\nba x", "line 3, place 4"), ("\xe4", "line 1, place 1")]
)
def test_a_character_outside_the_vocabulary_is_named_by_its_place(tmp_path: Path, content: str, place: str) -> None:
    text(tmp_path, "one.txt", content)
    with pytest.raises(UnusableData, match=place) as error:
        FolderSource(tmp_path).read(TOKENS, NEXT)
    assert error.value.public == f"a text has a character in {place}, which begins no token of the vocabulary"


def test_texts_need_tokens_and_readable_files(tmp_path: Path) -> None:
    text(tmp_path, "one.csv", "ab")
    with pytest.raises(InvalidInput, match=r"names end in \.txt"):
        FolderSource(tmp_path).read(TOKENS, NEXT)


@pytest.mark.parametrize(("target", "part"), [(MASKS, "masks"), (LABELS, "labels.csv"), (VALUES, "values.csv")])
def test_a_folder_of_images_holds_targets_if_masks_or_a_table_lie_beside_them(
    tmp_path: Path, target: TargetSpec, part: str
) -> None:
    (tmp_path / "images").mkdir()
    assert not holds_targets(tmp_path, target)
    (tmp_path / part).mkdir()
    assert holds_targets(tmp_path, target)
    assert not holds_targets(tmp_path, NO_TARGET)
    (tmp_path / "good").mkdir()
    assert holds_targets(tmp_path, NO_TARGET)
