"""The last release is really another one: no module of its programs comes from this tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compatibility import installed_release
from tests.compatibility.installed_release import Release, git

PROGRAMS = ("moonfed-client", "moonfed-coordinator", "moonfed-experiments", "moonfed-export")
ORIGINS = """
import importlib, json, pkgutil, sys, warnings
warnings.simplefilter("ignore")
import moonfed
names = ["moonfed", *(found.name for found in pkgutil.walk_packages(moonfed.__path__, "moonfed.") if found.ispkg)]
print(json.dumps({name: list(importlib.import_module(name).__path__) for name in names}))
"""
FINDERS = 'import json, sys; print(json.dumps([getattr(found, "__module__", "") for found in sys.meta_path]))'


def in_tree(*words: str) -> str:
    return git(*words).stdout.decode()


def test_every_package_is_the_releases_own(last: Release) -> None:
    origins = last.python(ORIGINS)
    assert len(origins) > 60
    assert origins == {name: [str(last.packages / name.replace(".", "/"))] for name in origins}
    assert not [name for name in last.python(FINDERS) if "editable" in name]


def test_its_code_is_that_of_the_named_commit(last: Release) -> None:
    commit = installed_release.commit()
    listed = in_tree("ls-tree", "-r", "--name-only", commit, "common/moonfed").split()
    sources = [name for name in listed if name.endswith(".py")]
    assert len(sources) > 100
    for name in sources:
        installed = last.packages / Path(name).relative_to("common")
        assert installed.read_text() == in_tree("show", f"{commit}:{name}"), name


@pytest.mark.parametrize("program", PROGRAMS)
def test_its_programs_run(program: str, last: Release) -> None:
    version: dict[str, object] = {}
    exec((last.packages / "moonfed" / "version.py").read_text(), version)
    done = subprocess.run([last.programs / program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["moonfed", version["RELEASE"]]


def test_a_tree_without_the_commit_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for root in (tmp_path, installed_release.ROOT):  # no repository, and one without it
        monkeypatch.setattr(installed_release, "ROOT", root)
        monkeypatch.setattr(installed_release, "NAMED", tmp_path / "LAST_RELEASE")
        (tmp_path / "LAST_RELEASE").write_text("0" * 40 + "\n")
        assert "0" * 40 in installed_release.missing()
