"""A release of moonfed in an environment of its own, whose programs run next to this one's.

The environment has this one's packages for its dependencies, as long as the requirements of both releases allow it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NAMED = Path(__file__).with_name("LAST_RELEASE")
INSTALLED = ROOT / "build" / "compatibility"
KEPT = ("deploy", "docs")  # what a release has besides its wheel
PIP = (sys.executable, "-m", "pip")


@dataclass(frozen=True)
class Release:
    """An installed release, in a virtual environment that also has the files of KEPT."""

    directory: Path

    @property
    def programs(self) -> Path:
        return self.directory / "bin"

    @property
    def packages(self) -> Path:
        return packages_of(self.directory)

    def python(self, script: str, *words: str) -> Any:
        """Run a script with this release's moonfed; return what it prints as JSON."""
        command = [str(self.programs / "python"), "-c", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.directory)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def packages_of(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment), "platbase": str(environment)}))


def commit() -> str:
    """Return the last release's commit."""
    return NAMED.read_text().strip()


def missing() -> str:
    """Return why the last release's tree is not there, as in an archive or a shallow clone; else an empty text."""
    if git("cat-file", "-e", f"{commit()}^{{tree}}", check=False).returncode == 0:
        return ""
    return f"this tree lacks the last release's commit: git fetch origin {commit()}"


def git(*words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=check)  # noqa: S607


def last_release() -> Release:
    """Return the last release, which is built and installed the first time."""
    directory = INSTALLED / f"{commit()[:12]}-{sys.implementation.cache_tag}"
    with _locked(directory):
        installed = directory / "installed"
        if not installed.exists():
            shutil.rmtree(directory, ignore_errors=True)
            with tempfile.TemporaryDirectory() as temporary:
                tree = Path(temporary) / "tree"
                _export(commit(), tree)
                install(_wheel(tree), directory)
                for name in KEPT:
                    shutil.copytree(tree / name, directory / name)
            installed.touch()
    return Release(directory)


def install(wheel: Path, directory: Path) -> Release:
    """Install a wheel in a new environment."""
    venv.create(directory, symlinks=True)
    python = str(directory / "bin" / "python")
    pip = [*PIP, "--python", python, "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    # A .pth line brings this environment's packages, but not its own .pth files, by which moonfed is editable here.
    (packages_of(directory) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return Release(directory)


def _export(tree: str, directory: Path) -> None:
    archive = git("archive", "--format=tar", tree).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as found:
        found.extractall(directory, filter="data")


def _wheel(tree: Path) -> Path:
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([*PIP, "wheel", *options, "--wheel-dir", str(tree / "dist"), str(tree)], cwd=tree, check=True)
    (wheel,) = (tree / "dist").glob("moonfed-*.whl")
    return wheel


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one test process build, while others wait."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
