"""Releases: the same bytes from one commit, complete metadata, and a signature that covers every file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest
import tomllib
from packaging.specifiers import SpecifierSet

from moonfed.version import RELEASE
from tools.build_release import EPOCH, SUMS, ReleaseError, build_release, build_wheel, copy_sources, main, sign
from tools.lock_requirements import ROOT

NAMES = [f"moonfed-{RELEASE}{ending}" for ending in ("-py3-none-any.whl", ".cdx.json", ".tar.gz")]
STRAY = "stray.py"  # in every folder where files of no commit may lie
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(shutil.which, ("git", "ssh-keygen"))), reason="a release needs git and OpenSSH"),
    pytest.mark.skipif(int(version("setuptools").split(".")[0]) < 77, reason="the build needs setuptools 77 or later"),
]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit of the working tree, and with files that are in no commit."""
    root = tmp_path_factory.mktemp("first") / "repository"
    copy_sources(root)
    (root / ".gitignore").write_text("build/\n")
    run("git", "init", "--quiet", cwd=root)
    run("git", "add", "--all", cwd=root)
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    date = f"@{EPOCH} +0200"
    run("git", *author, "commit", "--quiet", "--message", "Begin", cwd=root, GIT_COMMITTER_DATE=date)
    for folder in ("build/lib/moonfed", "common/moonfed", "."):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / STRAY).touch()
    return root


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path, cwd=path.parent)
    return path


@pytest.fixture(scope="module")
def release(repository: Path, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release")
    with umask(0o077):
        build_release(repository, directory, key)
    return directory


@pytest.fixture(scope="module")
def metadata(release: Path) -> Message:
    with ZipFile(release / NAMES[0]) as archive:
        return Parser().parsestr(archive.read(f"moonfed-{RELEASE}.dist-info/METADATA").decode())


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_commit_gives_the_same_bytes_elsewhere_and_later(
    release: Path, repository: Path, key: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "a" / "clone"
    with umask(0o002):
        run("git", "clone", "--quiet", repository, clone, cwd=tmp_path)
        (again := tmp_path / "again").mkdir()
        files = build_release(clone, again, key)
    assert {file.name for file in files} == {*NAMES, SUMS, f"{SUMS}.sig"}
    assert contents(again) == contents(release)


def test_the_wheel_is_that_of_the_source_distribution_and_of_the_tree(release: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    with umask(0o022):
        run(*pip, release / NAMES[2], cwd=tmp_path, SOURCE_DATE_EPOCH=str(EPOCH))
    (tree := tmp_path / "tree").mkdir()
    expected = (release / NAMES[0]).read_bytes()
    assert (tmp_path / NAMES[0]).read_bytes() == expected
    assert build_wheel(tree).read_bytes() == expected


def test_the_wheel_has_every_committed_file_of_the_packages_and_no_other(release: Path, repository: Path) -> None:
    tracked = run("git", "ls-files", cwd=repository).splitlines()
    packaged = {path.partition("/")[2] for path in tracked if re.match(r"\w+/moonfed/", path)}
    with ZipFile(release / NAMES[0]) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == packaged


def test_the_source_distribution_has_what_installs_it(release: Path, repository: Path) -> None:
    names = {name.partition("/")[2] for name in run("tar", "tzf", NAMES[2], cwd=release).splitlines()}
    tracked = set(run("git", "ls-files", cwd=repository).splitlines()) - {".gitignore"}
    added = {"PKG-INFO", "setup.cfg"}
    assert {name for name in names if not name.startswith("moonfed.egg-info/")} == tracked | added
    assert {"CHANGELOG.md", "LICENSE", "README.md", "requirements/device.txt"} <= tracked


def test_changes_that_are_not_committed_are_refused(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", repository, clone, cwd=tmp_path)
    (clone / "README.md").write_text("changed")
    with pytest.raises(ReleaseError, match=r"README\.md"):
        build_release(clone, tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == ["clone"]


def verified(directory: Path, key: Path) -> bool:
    """Return whether the commands in docs/supply-chain.md accept the files."""
    (allowed := key.with_suffix(".allowed")).write_text(f"moonfed {key.with_suffix('.pub').read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "moonfed", "-n", "file", "-s", f"{SUMS}.sig"]
    signed = subprocess.run(command, cwd=directory, input=(directory / SUMS).read_bytes(), capture_output=True)
    summed = subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=directory, capture_output=True)  # noqa: S607
    return signed.returncode == 0 and summed.returncode == 0


@pytest.mark.parametrize("changed", [*NAMES, SUMS, f"{SUMS}.sig"])
def test_the_signature_covers_every_file(changed: str, release: Path, key: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(release, tmp_path / "release")
    assert verified(directory, key)
    content = bytearray((directory / changed).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / changed).write_bytes(content)
    assert not verified(directory, key)


def test_a_key_that_cannot_sign_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SUMS).touch()
    (wrong := tmp_path / "wrong").write_text("no key")
    with pytest.raises(ReleaseError, match=str(wrong)):
        sign(tmp_path / SUMS, wrong)
    monkeypatch.setenv("RELEASE_KEY", str(tmp_path / "absent"))
    with pytest.raises(SystemExit, match=str(tmp_path / "absent")):
        main()


def test_the_metadata_are_complete(metadata: Message, release: Path) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("moonfed", RELEASE)
    assert metadata["License-Expression"] == "Apache-2.0"
    classifiers = metadata.get_all("Classifier", [])
    minors = [found[1] for each in classifiers if (found := re.fullmatch(r".* :: Python :: 3\.(\d+)", each))]
    permitted = SpecifierSet(metadata["Requires-Python"])
    assert minors == [str(minor) for minor in range(30) if permitted.contains(f"3.{minor}.0")]
    assert "Typing :: Typed" in classifiers
    assert not [each for each in classifiers if each.startswith("License")], "the expression has it"
    with ZipFile(release / NAMES[0]) as archive:
        assert "moonfed/py.typed" in archive.namelist()


def test_the_description_has_no_link_into_the_repository_and_names_what_exists(metadata: Message) -> None:
    description = metadata.get_payload()
    assert isinstance(description, str)
    assert "](" not in description
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {each for found in re.findall(r"moonfed\[(\w+)\]", description) for each in found.split(",")}
    assert extras <= set(project["optional-dependencies"])
    assert set(project["scripts"]) == set(re.findall(r"`(moonfed-\w+)", description))
