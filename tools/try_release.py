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
from pathlib import Path

import tomllib

from tools.lock_requirements import CONSTRAINTS, ROOT

MEGABYTE = 1_000_000
LARGEST_DEVICE = 1_200 * MEGABYTE  # with torch without CUDA
LARGEST_ADDITION = 60 * MEGABYTE  # where torch and numpy are already, without bytecode
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
    "serve": "moonfed.serving.server",
    "experiments": "moonfed.experiments.demo, moonfed.experiments.fleet.simulate_command",
    "ray": "moonfed.experiments.fleet.ray_workers, ray",
}
NOT_INSTALLED = {  # and why
    "export-base": "`export` has it",
    "export-gpu": "gigabytes of CUDA",
    "serve-base": "`serve` has it",
    "serve-gpu": "gigabytes of CUDA",
    "timm": "its torchvision must be of the same build as torch",
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


def size(directory: Path) -> int:
    """Return the bytes of a directory's files; links count nothing."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


@contextmanager
def empty_environment() -> Iterator[Path]:
    """Make an environment without packages, not even pip, and remove it afterwards."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="environment-") as temporary:
        venv.create(temporary, symlinks=True)
        yield Path(temporary)


def install(environment: Path, *requirements: str) -> None:
    """Install requirements, in the versions of constraints.txt, without bytecode."""
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-compile", "--disable-pip-version-check", "--constraint", str(CONSTRAINTS), *requirements],
        check=True,
    )


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


def compile_bytecode(environment: Path) -> None:
    """Compile every module, as pip does without --no-compile."""
    python = str(environment / "bin" / "python")
    subprocess.run([python, "-m", "compileall", "-qq", str(environment / "lib")])  # torch has files for other Pythons


def try_device(artefact: Path, version: str) -> Iterator[str]:
    """Install a device where torch and numpy are already; yield the rows of its size, and of what moonfed added.

    Raises TrialError if that is too large.
    """
    with empty_environment() as environment:
        install(environment, "torch", "numpy")
        there = size(environment)
        install(environment, str(artefact))
        check_programs(environment, version)
        check_imports(environment, ON_DEVICE)
        check_missing_extras(environment)
        plain = size(environment)
        yield _row("device where torch and numpy are already", plain - there)
        yield _row("device", plain)
        compile_bytecode(environment)
        whole = size(environment)
        yield _row("device, with bytecode", whole)
    for bytes_, limit in ((plain - there, LARGEST_ADDITION), (whole, LARGEST_DEVICE)):
        if bytes_ > limit:
            raise TrialError(f"a device has {bytes_:,} bytes; it must have at most {limit:,}")


def try_extra(artefact: Path, extra: str, version: str) -> int:
    """Install an artefact with an extra; return the environment's bytes."""
    with empty_environment() as environment:
        install(environment, f"{artefact}[{extra}]")
        check_programs(environment, version)
        check_imports(environment, NEEDED[extra])
        return size(environment)


def _row(name: str, bytes_: int) -> str:
    return f"| {name} | {bytes_ / MEGABYTE:,.0f} |"


def try_release(directory: Path, extras: Sequence[str]) -> Iterator[str]:
    """Try the artefacts in a directory; yield the rows of a table, in Markdown.

    Raises TrialError if a program does not start, or if a device's installation is too large.
    """
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    yield "| installation | MB |\n| --- | --- |"
    yield from try_device(wheel, version)
    yield _row("`images`, from the source distribution", try_extra(sdist, "images", version))
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
