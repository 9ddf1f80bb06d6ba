"""The files requirements/*.txt, which images install from, agree with pyproject.toml and constraints.txt."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
import tomllib
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from moonfed.plan.selection import PYTHON_WITHOUT
from tools.lock_requirements import CONSTRAINTS, DIRECTORY, ROOT, Pinned, name_of, normalised, read_pinned, roots

FILES = sorted(path.stem for path in DIRECTORY.glob("*.txt"))
# Chosen by torch itself, which constraints.txt pins; CPU builds have none of them. pip's own build tool.
NOT_CONSTRAINED = re.compile(r"nvidia-.*|cuda-.*|triton|setuptools")
ACCELERATED = re.compile(r"nvidia-.*|cuda-.*|triton|torch")
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_machine": machine,
    }
    for python in ("3.11", "3.12", "3.13", "3.14")
    for machine in ("x86_64", "aarch64")
]


def pinned(file: str) -> list[Pinned]:
    return read_pinned((DIRECTORY / f"{file}.txt").read_text())


def versions(found: list[Pinned], environment: dict[str, str]) -> dict[str, str]:
    """Return the version of each distribution in an environment; there must be exactly one."""
    chosen: dict[str, list[str]] = defaultdict(list)
    for each in found:
        if not each.marker or Marker(each.marker).evaluate(environment):
            chosen[each.name].append(each.version)
    assert all(len(several) == 1 for several in chosen.values()), chosen
    return {name: several[0] for name, several in chosen.items()}


def test_the_newest_python_is_the_first_without_torchscript() -> None:
    permitted = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
    major, minor = PYTHON_WITHOUT
    assert [permitted.contains(f"{major}.{each}.0") for each in (minor, minor + 1)] == [True, False]


def test_each_root_has_its_file() -> None:
    assert sorted(roots()) == FILES


@pytest.mark.parametrize("file", FILES)
def test_every_version_is_that_of_the_constraints(file: str) -> None:
    constraints = read_pinned(CONSTRAINTS.read_text())
    for environment in ENVIRONMENTS:
        expected = versions(constraints, environment)
        for name, version in versions(pinned(file), environment).items():
            assert expected.get(name, version) == version, name
            assert name in expected or NOT_CONSTRAINED.fullmatch(name), f"{name} is missing in constraints.txt"


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_what_pyproject_asks_for(file: str) -> None:
    for environment in ENVIRONMENTS:
        found = versions(pinned(file), environment)
        for text in roots()[file]:
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate(environment)
            if applies and (requirement.name, file) != ("torch", "torch-dependencies"):
                assert requirement.specifier.contains(found[normalised(requirement.name)]), text


@pytest.mark.parametrize("file", FILES)
def test_every_requirement_has_hashes_and_no_address(file: str) -> None:
    text = (DIRECTORY / f"{file}.txt").read_text()
    assert all(each.hashes for each in pinned(file))
    assert not re.search(r"https?:|--(?!hash=)|@", text), "an address, or an option other than a hash"


def test_other_builds_of_torch_bring_their_own_accelerator() -> None:
    names = {each.name for each in pinned("torch-dependencies")}
    assert names == {name for name in (each.name for each in pinned("torch")) if not ACCELERATED.fullmatch(name)}


@pytest.mark.parametrize(
    ("requirement", "name"), [("psycopg[binary]>=3.2", "psycopg"), ("Typing_Extensions==1", "typing-extensions")]
)
def test_names_are_normalised(requirement: str, name: str) -> None:
    assert name_of(requirement) == name
