"""The lower bounds of pyproject.toml: programs with the lowest versions that it allows go through the tutorials.

Device, coordinator, engineer and inference server have an environment each. torch stays at its pinned version, since
`make old-torch` tries older ones.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from moonfed.experiments.child_processes import ChildProcesses, run
from tests.coordinator.conftest import new_bucket
from tests.deploy.environments import UV, install_torch, new_environment, programs_in
from tests.federation.test_tutorials import TUTORIALS, last_accuracy, printed_by
from tests.support import postgresql
from tests.support.ports import free_port
from tests.support.tutorial import follow
from tools.build_release import build_wheel
from tools.lock_requirements import CONSTRAINTS, ROOT, name_of, requirements_of

STUBS = ROOT / "proto" / "moonfed" / "v1"
PARTS = {
    "device": ("images", "tables", "tracing"),
    "coordinator": ("console", "mlflow", "postgres", "s3", "tensorboard", "tracing", "wandb"),
    "engineer": ("experiments",),
    "server": ("serve",),
}
WITH_TORCH = ("device", "engineer")
OF_PART = {
    "moonfed-client": "device",
    "moonfed-coordinator": "coordinator",
    "moonfed-export": "engineer",
    "moonfed-experiments": "engineer",
}
by_hand = pytest.mark.skipif(
    "MOONFED_LOWER_BOUNDS" not in os.environ, reason="`make lower-bounds` runs this test: it takes minutes"
)
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """An environment for each part, with the lowest versions."""
    directory = tmp_path_factory.mktemp("lowest")
    wheel = build_wheel(directory)
    return {part: lowest_environment(directory / part, wheel, extras) for part, extras in PARTS.items()}


def lowest_environment(path: Path, wheel: Path, extras: tuple[str, ...]) -> Path:
    """Make an environment with moonfed, the lowest versions of what it asks for, and torch where it is used."""
    asked = [text for text in requirements_of(*extras) if name_of(text) != "torch"]
    lowest = path.with_suffix(".txt")
    resolve = [*UV, "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--output-file", str(lowest), "-"]
    subprocess.run(resolve, input="\n".join(asked), text=True, stdout=subprocess.DEVNULL, check=True)
    new_environment(path, "--requirement", lowest)
    new_environment(path, "--no-deps", wheel)
    if path.name in WITH_TORCH:
        torch = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
        install_torch(path, "--constraint", lowest, torch)
    return path


@pytest.fixture
def fleet(
    environments: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChildProcesses]:
    chosen = {program: environments[part] for program, part in OF_PART.items()}
    with programs_in(chosen, tmp_path, monkeypatch) as programs:
        yield programs


@by_hand
def test_a_table_is_trained_and_its_model_served(fleet: ChildProcesses, environments: Mapping[str, Path]) -> None:
    serve = f"{environments['server'] / 'bin' / 'moonfed-export'} serve"
    changes = {"8000": str(free_port()), "8001": str(free_port()), "moonfed-export serve": serve}
    printed = follow(TUTORIALS / "table.md", fleet, changes)
    assert last_accuracy(printed_by(printed, "evaluate")) > 0.9
    assert len(printed_by(printed, "predict parts/test.csv --server").splitlines()) == 36


@by_hand
def test_pictures_are_trained_and_the_run_exported(
    fleet: ChildProcesses, s3_server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an object store, and with PostgreSQL where there is one."""
    monkeypatch.setenv("MOONFED_BLOBS", new_bucket(s3_server, monkeypatch.setenv))
    if not postgresql.missing():
        monkeypatch.setenv("MOONFED_DATABASE", request.getfixturevalue("postgresql_server").new_database())
    printed = follow(TUTORIALS / "pictures.md", fleet, {"--rounds 15": "--rounds 2"})
    assert len(printed_by(printed, "predict").splitlines()) == 41
    for tracker, target in (("tensorboard", "log"), ("mlflow", "sqlite:///mlflow.db"), ("wandb", "project")):
        run("moonfed-coordinator", "run", "export", "shapes", target, "--to", tracker)
    fleet.start("console", "moonfed-coordinator", "console", "--port", "0")
    assert "http://127.0.0.1" in fleet.first_line("console")


@pytest.mark.parametrize(
    ("distribution", "pattern", "files"),
    [
        ("protobuf", r"Domain\.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+)", "*_pb2.py"),
        ("grpcio", r"GRPC_GENERATED_VERSION = '(\d+)\.(\d+)\.(\d+)'", "*_pb2_grpc.py"),
    ],
    ids=["protobuf", "grpcio"],
)
def test_the_stubs_accept_the_lowest_version(distribution: str, pattern: str, files: str) -> None:
    """They raise for a runtime that is older than their generator."""
    needed = {".".join(found) for path in STUBS.glob(files) for found in re.findall(pattern, path.read_text())}
    (asked,) = [each for each in map(Requirement, requirements_of()) if each.name == distribution]
    assert {each.version for each in asked.specifier if each.operator == ">="} == needed
