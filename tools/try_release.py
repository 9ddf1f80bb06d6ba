"""Install what `make release` built, in an empty environment for each extra, and print a table of their sizes.

Every program must start in each, and what an extra is for must be importable; without the extra, a command must name
it. pip installs the versions of constraints.txt, and the build of torch that its configuration finds, which should be
the one without CUDA. Environments are made in build/, one at a time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomllib

from tools.lock_requirements import CONSTRAINTS, ROOT

MEGABYTE = 1_000_000
LARGEST_DEVICE = 1_200 * MEGABYTE  # with torch without CUDA
LARGEST_ADDITION = 60 * MEGABYTE  # where torch and numpy are there already, without bytecode
ON_DEVICE = "moonfed.edge_client.agent.main, moonfed.edge_client.worker.trainer"
NEEDED = {  # what the extra is for, and is not there without it
    "images": "PIL.Image",
    "tables": "pyarrow.parquet",
    "coordinator": "moonfed.coordinator.server",
    "postgres": "moonfed.coordinator.server, psycopg",
    "s3": "moonfed.coordinator.server, s3fs",
    "tracing": "moonfed.observability.otlp",
    "console": "moonfed.coordinator.console.server, moonfed.coordinator.console.passwords",
    "tensorboard": "moonfed.coordinator.trackers.tensorboard_tracker",
    "mlflow": "moonfed.coordinator.trackers.mlflow_tracker",
    "wandb": "moonfed.coordinator.trackers.wandb_tracker",
    "export": "moonfed.cli.program, moonfed.export.bundle_builder, moonfed.release.publish",
    "timm": "moonfed.export.bundle_builder, timm",
    "serve": "moonfed.serving.server",
    "experiments": "moonfed.experiments.demo, moonfed.experiments.fleet.simulate_command",
    "ray": "moonfed.experiments.fleet.ray_workers, ray",
}
NOT_INSTALLED = {  # and why
    "export-base": "`export` has it",
    "export-gpu": "gigabytes of CUDA",
    "serve-base": "`serve` has it",
    "serve-gpu": "gigabytes of CUDA",
    "docs": "development",
    "dev": "development",
}
WITHOUT_EXTRA = {  # commands that a device's installation does not have
    "coordinator": "moonfed-coordinator serve",
    "console": "moonfed-coordinator console",
    "export": "moonfed-export bundle --model mlp --input 4x4x1 --classes 2 --method fedavg --output bundle",
    "serve": "moonfed-export serve models",
    "experiments": "moonfed-experiments partition digits --output parts",
}
PROGRAMS = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])


class TrialError(Exception):
    """A program that does not do in an environment what it should; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class Size:
    """The bytes of an environment's files, and those of them that are bytecode."""

    everything: int
    bytecode: int

    @classmethod
    def of(cls, directory: Path) -> Size:
        """Add up the files in a directory; links count nothing."""
        files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
        compiled = [path for path in files if path.suffix == ".pyc"]
        return cls(sum(path.stat().st_size for path in files), sum(path.stat().st_size for path in compiled))

    def __sub__(self, earlier: Size) -> Size:
        return Size(self.everything - earlier.everything, self.bytecode - earlier.bytecode)


@contextmanager
def empty_environment() -> Iterator[Path]:
    """Make an environment without packages, not even pip, and remove it afterwards."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="environment-") as temporary:
        venv.create(temporary, symlinks=True)
        yield Path(temporary)


def install(environment: Path, *requirements: str) -> None:
    """Install requirements, in the versions of constraints.txt."""
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", "--constraint", str(CONSTRAINTS), *requirements], check=True)


def check_programs(environment: Path, version: str) -> None:
    """Raise TrialError unless every program prints the release's version."""
    for program in PROGRAMS:
        done = _run(environment, program, "--version")
        if (done.returncode, done.stdout) != (0, f"moonfed {version}\n"):
            raise TrialError(f"{program} --version printed {done.stdout + done.stderr!r}, exit code {done.returncode}")


def check_missing_extras(environment: Path) -> None:
    """Raise TrialError unless commands whose extra is missing name it in one sentence."""
    for extra, command in WITHOUT_EXTRA.items():
        done = _run(environment, *command.split())
        if done.returncode != 3 or f"moonfed[{extra}]" not in done.stderr or "Traceback" in done.stderr:
            raise TrialError(f"{command} printed {done.stderr!r}, exit code {done.returncode}")


def check_imports(environment: Path, modules: str) -> None:
    """Raise TrialError unless modules can be imported."""
    done = _run(environment, "python", "-c", f"import {modules}")
    if done.returncode != 0:
        raise TrialError(f"{modules} cannot be imported: {done.stderr.strip().splitlines()[-1]}")


def _run(environment: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an environment's program in a directory and a home of its own."""
    with tempfile.TemporaryDirectory() as directory:
        command = [str(environment / "bin" / program), *words]
        settings = {"HOME": directory, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=directory, env=settings, capture_output=True, text=True)


def try_device(artefact: Path, version: str) -> tuple[Size, Size]:
    """Install a device where torch and numpy are; return the environment's size, and what moonfed added to it."""
    with empty_environment() as environment:
        install(environment, "torch", "numpy")
        before = Size.of(environment)
        install(environment, str(artefact))
        check_programs(environment, version)
        check_imports(environment, ON_DEVICE)
        check_missing_extras(environment)
        whole = Size.of(environment)
        return whole, whole - before


def try_extra(wheel: Path, extra: str, version: str) -> Size:
    """Install the wheel with an extra; return the environment's size."""
    with empty_environment() as environment:
        install(environment, f"{wheel}[{extra}]")
        check_programs(environment, version)
        check_imports(environment, NEEDED[extra])
        return Size.of(environment)


def _row(name: str, size: Size) -> str:
    return f"| {name} | {size.everything / MEGABYTE:,.0f} | {size.bytecode / MEGABYTE:,.0f} |"


def try_release(directory: Path, extras: Sequence[str]) -> Iterator[str]:
    """Try the artefacts in a directory; yield the rows of a table, in Markdown.

    Raises TrialError if a program does not start, or if a device's installation is too large.
    """
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    yield "| installation | MB | of it bytecode |\n| --- | --- | --- |"
    whole, added = try_device(wheel, version)
    yield _row("device", whole)
    yield _row("device, without torch and numpy", added)
    if whole.everything > LARGEST_DEVICE:
        raise TrialError(f"a device has {whole.everything:,} bytes; it must have at most {LARGEST_DEVICE:,}")
    if added.everything - added.bytecode > LARGEST_ADDITION:
        raise TrialError(f"{added.everything - added.bytecode:,} bytes without torch; at most {LARGEST_ADDITION:,}")
    yield _row("device, from the source distribution", try_device(sdist, version)[0])
    for extra in extras:
        yield _row(f"`{extra}`", try_extra(wheel, extra, version))


def main() -> None:
    """Try what is in dist/."""
    try:
        for row in try_release(ROOT / "dist", tuple(NEEDED)):
            print(row, flush=True)
    except TrialError as error:
        sys.exit(f"make release: {error}")
    for extra, reason in NOT_INSTALLED.items():
        print(f"not installed: {extra}: {reason}")


if __name__ == "__main__":
    main()
