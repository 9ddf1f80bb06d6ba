"""The wheel in a clean environment: one top-level package, and programs that no user file can break."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

import pytest
import tomllib

from moonfed.version import RELEASE
from tests.test_mirroring import PARTS
from tools.build_release import build_wheel

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROGRAMS = sorted(SETTINGS["project"]["scripts"])
NOT_OURS = (*PARTS, "tests", "tools")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(int(version("setuptools").split(".")[0]) < 77, reason="the build needs setuptools 77 or later"),
    pytest.mark.timeout(600),
]

IMPORT_EVERYTHING = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
names = [".".join(path.relative_to(root).with_suffix("").parts) for path in sorted(root.glob("moonfed/**/*.py"))]
assert len(names) > 300, names
for name in names:
    try:
        module = importlib.import_module(name.removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        if error.name != "triton_python_backend_utils":  # which only Triton itself has
            raise
    else:
        assert str(root) in module.__file__, module.__file__
"""


USER_CODE = """
import moonfed.client, moonfed.control.runs, moonfed.coordinator.server, moonfed.edge_client.settings, moonfed.errors
import moonfed.experiments.demo, moonfed.export.bundle_builder, moonfed.plan.selection, moonfed.release.publish
import moonfed.serving.server, moonfed.transport.client, moonfed.v1.fleet_pb2
reveal_type(moonfed.client.Coordinator.close)
reveal_type(moonfed.plan.selection.AUTO)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with only the wheel, and this environment's packages for its dependencies."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True)
    before = {path.name for path in site_packages(directory).iterdir()}
    run(
        *(sys.executable, "-m", "pip", "--python", directory / "bin" / "python"),
        *("install", "--quiet", "--no-index", "--no-deps", wheel),
        cwd=directory,
    )
    after = {path.name for path in site_packages(directory).iterdir()}
    (directory / "added").write_text("\n".join(sorted(after - before)))
    # A .pth line brings this environment's packages, but not its own .pth files, by which moonfed is editable here.
    (site_packages(directory) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return directory


def site_packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment), "platbase": str(environment)}))


@pytest.fixture
def unrelated(tmp_path: Path) -> Path:
    """A directory whose modules have the names of our folders."""
    for name in NOT_OURS:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name}.py is not part of moonfed')\n")
    return tmp_path


def test_installation_adds_one_top_level_package(environment: Path) -> None:
    added = (environment / "added").read_text().splitlines()
    assert added == ["moonfed", f"moonfed-{RELEASE}.dist-info"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_start_next_to_unrelated_files(program: str, environment: Path, unrelated: Path) -> None:
    for path in ("", str(unrelated)):
        assert "Usage" in run(environment / "bin" / program, "--help", cwd=unrelated, PYTHONPATH=path)


def test_no_module_imports_unrelated_files(environment: Path, unrelated: Path) -> None:
    python, site = environment / "bin" / "python", site_packages(environment)
    run(python, "-c", IMPORT_EVERYTHING, site, cwd=unrelated, PYTHONPATH=str(unrelated))


def test_users_code_is_checked_with_our_types(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER_CODE)
    words = ("--python-executable", environment / "bin" / "python", "--cache-dir", tmp_path / "cache", "user.py")
    found = run(sys.executable, "-m", "mypy", *words, cwd=tmp_path)
    assert re.findall(r'type is "(.*)"', found) == ["def (self: moonfed.client.sync.coordinator.Coordinator)", "str"]
