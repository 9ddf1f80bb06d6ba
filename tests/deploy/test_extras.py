"""The extras of pyproject.toml: each has at most one ONNX Runtime, and none replaces the torch that is there."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
import tomllib
from packaging.requirements import Requirement

from tools.lock_requirements import normalised

ROOT = Path(__file__).parents[2]
RUNTIMES = {"onnxruntime", "onnxruntime-gpu"}
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
WITH_RUNTIME = {
    "experiments": "onnxruntime",
    "export": "onnxruntime",
    "export-gpu": "onnxruntime-gpu",
    "serve": "onnxruntime",
    "serve-gpu": "onnxruntime-gpu",
}


def reached(requirement: Requirement) -> Iterator[Requirement]:
    """Yield a requirement and all that follow from it, as the metadata of what is installed here has them."""
    pending, seen = [requirement], set()
    while pending:
        current = pending.pop()
        if str(current) in seen:
            continue
        seen.add(str(current))
        yield current
        if normalised(current.name) == "moonfed":
            texts = [text for extra in current.extras for text in EXTRAS[extra]]
        else:
            texts = _required(current)
        pending.extend(map(Requirement, texts))


def _required(requirement: Requirement) -> list[str]:
    try:
        texts = requires(requirement.name) or []
    except PackageNotFoundError:  # the other ONNX Runtime, for example
        return []
    environments: list[dict[str, Any]] = [{"extra": extra} for extra in ("", *requirement.extras)]
    markers = {text: Requirement(text).marker for text in texts}
    return [text for text, marker in markers.items() if marker is None or any(map(marker.evaluate, environments))]


def names(extra: str) -> set[str]:
    return {normalised(each.name) for each in reached(Requirement(f"moonfed[{extra}]"))}


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_an_extra_brings_the_onnx_runtime_that_its_name_says_and_no_other(extra: str) -> None:
    expected = {WITH_RUNTIME[extra]} if extra in WITH_RUNTIME else names(extra) & {"onnxruntime"}
    assert names(extra) & RUNTIMES == expected


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"dev"}))
def test_no_extra_replaces_the_torch_that_is_there(extra: str) -> None:
    """Each torchvision asks for one torch: pip, which chooses the newest torchvision, would replace torch by that."""
    found = list(reached(Requirement(f"moonfed[{extra}]")))
    on_torch = [each for each in found if normalised(each.name) == "torch"]
    assert {operator.operator for each in on_torch for operator in each.specifier} <= {">="}
    assert "torchvision" not in {each.name for each in found}


def test_a_runtime_of_ones_own_is_possible() -> None:
    assert (names("export-base") | names("serve-base")) & RUNTIMES == set()
