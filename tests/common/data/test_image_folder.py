"""Images of classes in a folder, and reports of files that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.data.image_folder import BROKEN, LOOSE, REPEATED, UNREADABLE, ImageFolder, check_ignored
from moonfed.errors import InvalidInput
from tests.support.refusals import refused
from tests.support.unprivileged import run_unprivileged


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("cat/1.png", "cat/more/2.png", "dog/3.png"):
        touch(tmp_path / "pictures" / name)
    return tmp_path / "pictures"


def found(folder: ImageFolder) -> dict[str, list[str]]:
    """The files of each class, relative to it."""
    return {top.name: [str(file.relative_to(top)) for file in folder.files(top)] for top in folder.classes()}


UNCHANGED = {"cat": ["1.png", "more/2.png"], "dog": ["3.png"]}


@pytest.mark.parametrize(
    "name",
    ["@eaDir", "lost+found", "System Volume Information", "__MACOSX", "#recycle", "$RECYCLE.BIN", "$Recycle.Bin",
     ".thumbnails", "@Recycle"],
)  # fmt: skip
def test_what_systems_create_is_ignored_at_every_depth(root: Path, name: str) -> None:
    for place in ("", "cat", "cat/more"):
        touch(root / place / name / "1.png" / "thumbnail.jpg")
    folder = ImageFolder(root)
    assert found(folder) == UNCHANGED
    assert list(ImageFolder(root).files(root)) == [root / name for name in ("cat/1.png", "cat/more/2.png", "dog/3.png")]
    assert folder.flaws.numbers() == {}


def test_named_folders_are_ignored_at_every_depth_but_files_are_not(root: Path, tmp_path: Path) -> None:
    touch(root / "unsorted" / "4.png")
    touch(root / "cat" / "unsorted" / "5.png")
    touch(tmp_path / "elsewhere" / "6.png")
    (root / "dog" / "unsorted").symlink_to(tmp_path / "elsewhere")
    assert found(ImageFolder(root, ["unsorted", "absent"])) == UNCHANGED
    assert set(found(ImageFolder(root))) == {"cat", "dog", "unsorted"}
    touch(root / "cat" / "more" / "unsorted")
    assert found(ImageFolder(root, ["unsorted"]))["cat"] == ["1.png", "more/2.png", "more/unsorted"]


@pytest.mark.parametrize("name", ["", ".", "..", "cat/more", "/"])
def test_a_path_is_no_name_of_a_folder(name: str) -> None:
    with refused(InvalidInput, "ignore-folder"):
        check_ignored(["unsorted", name])


def test_links_to_folders_are_followed(root: Path, tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere" / "2024" / "may" / "4.png")
    touch(tmp_path / "birds" / "5.png")
    (root / "cat" / "link").symlink_to(tmp_path / "elsewhere")
    (root / "cat" / "again.png").symlink_to("1.png")
    (root / "bird").symlink_to("../birds")
    folder = ImageFolder(root)
    assert found(folder) == {
        "bird": ["5.png"],
        "cat": ["1.png", "again.png", "more/2.png", "link/2024/may/4.png"],
        "dog": ["3.png"],
    }
    assert folder.flaws.numbers() == {}


def _to_itself(root: Path) -> None:
    (root / "cat" / "loop").symlink_to(".")


def _to_a_folder_above(root: Path) -> None:
    (root / "cat" / "more" / "loop").symlink_to("../../..")


def _to_the_data(root: Path) -> None:
    (root / "dog" / "loop").symlink_to(root)


def _to_another_class(root: Path) -> None:
    (root / "cat" / "loop").symlink_to("../dog")


def _as_a_class(root: Path) -> None:
    (root / "loop").symlink_to(".")


def _to_a_class_as_a_class(root: Path) -> None:
    (root / "bird").symlink_to("dog")


@pytest.mark.parametrize(
    "link", [_to_itself, _to_a_folder_above, _to_the_data, _to_another_class, _as_a_class, _to_a_class_as_a_class]
)
def test_links_that_lead_back_are_reported_and_not_followed(root: Path, link: Callable[[Path], None]) -> None:
    link(root)
    folder = ImageFolder(root)
    assert found(folder) == UNCHANGED
    assert folder.flaws.numbers() == {REPEATED: 1}
    (sentence,) = folder.flaws.sentences(3, "pictures")
    assert sentence.startswith("1 folder in pictures is a link to what is read elsewhere, or to a folder above it, and")


def test_folders_that_link_to_each_other_are_read_once(root: Path, tmp_path: Path) -> None:
    names = [f"album-{number}" for number in range(12)]  # on 12! paths
    for name in names:
        touch(tmp_path / "albums" / name / f"{name}.png")
        for other in names:
            (tmp_path / "albums" / name / other).symlink_to(f"../{other}")
    (root / "cat" / "albums").symlink_to(tmp_path / "albums")
    folder = ImageFolder(root)
    read = found(folder)["cat"]
    assert len(read) == len(set(read)) == 2 + len(names)
    assert {Path(name).name for name in read} == {"1.png", "2.png", *(f"{name}.png" for name in names)}
    assert set(folder.flaws.numbers()) == {REPEATED}


def test_what_lies_beside_the_class_folders_is_counted(root: Path, tmp_path: Path) -> None:
    for name in ("4.png", "5.jpg", ".hidden", "notes.txt"):
        touch(root / name)
    (root / "6.png").symlink_to(touch(tmp_path / "elsewhere.png"))
    (root / "bird").symlink_to(tmp_path / "unplugged")
    (root / "loop").symlink_to("loop")
    folder = ImageFolder(root)
    assert found(folder) == UNCHANGED
    assert folder.flaws.numbers() == {LOOSE: 4, BROKEN: 2}
    assert list(folder.flaws.sentences(3, "pictures")) == [
        f"4 files in pictures lie beside the class folders and are ignored, such as {root}/4.png",
        f"2 links in pictures lead nowhere and are ignored, such as {root}/bird",
    ]


READ = """
import json, logging, sys
from pathlib import Path
from moonfed.data.folder import FolderSource
from moonfed.errors import InvalidInput
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
source = FolderSource(Path(sys.argv[1]))
try:
    spec, target = InputSpec(kind="image", shape=(4, 6, 3)), class_target(("cat", "dog"))
    print(json.dumps(source.read(spec, target).labels.tolist()))
except InvalidInput as error:
    print(error)
"""


def test_a_folder_below_a_class_that_cannot_be_read_is_counted_and_named(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "private" / "inner").mkdir(parents=True)
    (pictures / "cat" / "forbidden").mkdir()
    (pictures / "cat" / "listed").mkdir()
    (pictures / "dog" / "link").symlink_to(tmp_path / "private" / "inner")
    for path, mode in (
        (pictures / "cat" / "forbidden", 0), (pictures / "cat" / "listed", 0o444), (tmp_path / "private", 0),
    ):  # fmt: skip
        path.chmod(mode)
    done = run_unprivileged(READ, pictures)
    assert (done.returncode, done.stdout) == (0, "[0, 0, 1]\n"), done.stderr
    assert done.stderr == (
        f"3 folders in {pictures} cannot be read and are ignored, such as {pictures}/cat/forbidden "
        "(Permission denied)\n"
    )


@pytest.mark.parametrize("mode", [0, 0o444, 0o111])
def test_a_class_folder_that_cannot_be_read_is_an_error(pictures: Path, mode: int) -> None:
    (pictures / "dog").chmod(mode)
    before_reading = "import sys; from pathlib import Path; from moonfed.data.folder import FolderSource\n"
    before_reading += "try: FolderSource(Path(sys.argv[1])).check()\nexcept Exception as error: print(error)"
    for script in (READ, before_reading):
        assert run_unprivileged(script, pictures).stdout == (
            f"'{pictures}' has the folder 'dog', which cannot be read: Permission denied; permit it, or leave it out "
            "with --ignore-folder\n"
        )
    (pictures / "dog").chmod(0o755)


@pytest.mark.parametrize("closed", [".", "..", "../.."])
def test_a_place_that_cannot_be_read_is_an_error_and_the_data_count_as_missing(
    pictures: Path, tmp_path: Path, closed: str
) -> None:
    place = tmp_path / "mount" / "camera" / "pictures"
    place.parent.mkdir(parents=True)
    pictures.rename(place)
    (place / closed).chmod(0)
    named = f"'{place}' cannot" if closed == "." else f"data is '{place}', which cannot"
    via_text = "from moonfed.data.open_source import open_source\n" + READ.replace("source.read", "read").replace(
        "try:", "try:\n    read = open_source(sys.argv[1]).read"
    )
    for script in (READ, via_text):
        assert run_unprivileged(script, place).stdout == f"{named} be read: Permission denied\n"
    script = "import sys; from moonfed.data.fingerprint import data_fingerprint as f; print(f(sys.argv[1]))"
    assert run_unprivileged(script, place).stdout == "missing\n"
    (tmp_path / "mount").chmod(0o755)
    (tmp_path / "mount" / "camera").chmod(0o755)
    place.chmod(0o755)


def test_without_labels_a_folder_that_cannot_be_read_is_counted(pictures: Path) -> None:
    for path in (pictures / "dog", pictures / "cat" / "more"):
        path.chmod(0)
    done = run_unprivileged(
        READ.replace("(spec, target).labels", '(spec, target, labels="ignored").inputs'),
        pictures,
    )
    for path in (pictures / "dog", pictures / "cat" / "more"):
        path.chmod(0o755)
    assert len(json.loads(done.stdout)) == 1
    assert done.stderr.startswith(f"2 folders in {pictures} cannot be read and are ignored")


def test_files_that_may_not_be_read_are_counted_as_such(pictures: Path) -> None:
    (pictures / "cat" / "a.png").chmod(0)
    done = run_unprivileged(READ, pictures)
    assert (done.returncode, done.stdout) == (0, "[0, 1]\n"), done.stderr
    example = f"such as {pictures}/cat/a.png (Permission denied)"
    assert done.stderr.startswith(f"1 of 3 files in {pictures} ")
    assert done.stderr.endswith(f", {example}\n")


def test_permission_changes_the_fingerprint(pictures: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from moonfed.data.fingerprint import data_fingerprint\n"
        "seen = []\n"
        "for name in ('', 'cat/a.png', 'cat/more', 'cat', 'empty', ''):\n"
        "    path = Path(sys.argv[1], name); mode = path.stat().st_mode\n"
        "    path.chmod(0 if name else mode); seen.append(data_fingerprint(sys.argv[1])); path.chmod(mode)\n"
        "print(len(set(seen)), seen[0] == seen[-1])\n"
    )
    (pictures / "empty").mkdir()
    done = run_unprivileged(script, pictures)
    assert done.stdout == "5 True\n", done.stderr


def test_a_folder_that_vanishes_while_it_is_read_is_counted(root: Path) -> None:
    folder = ImageFolder(root)
    files = folder.files(root / "cat")
    assert next(files) == root / "cat" / "1.png"
    (root / "cat" / "more" / "2.png").unlink()
    (root / "cat" / "more").rmdir()
    assert list(files) == []
    assert folder.flaws.numbers() == {UNREADABLE: 1}
