"""The wheel's bill of materials: valid CycloneDX that names the wheel and every distribution it needs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import tomllib

from moonfed.version import RELEASE
from tests.release.test_bill_of_materials import schema_errors
from tools.bill_of_materials import bill_of_materials
from tools.build_release import build_wheel
from tools.lock_requirements import CONSTRAINTS, ROOT, name_of, read_pinned

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bill(wheel: Path) -> dict[str, Any]:
    content = bill_of_materials(wheel)
    assert bill_of_materials(wheel) == content
    document: dict[str, Any] = json.loads(content)
    return document


def test_it_is_valid_and_names_the_wheel_by_its_digest(bill: dict[str, Any], wheel: Path) -> None:
    assert schema_errors(bill) == []
    product = bill["metadata"]["component"]
    assert (product["name"], product["version"]) == ("moonfed", RELEASE)
    assert product["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    assert product["licenses"] == [{"license": {"id": PROJECT["license"]}}]


def test_every_dependency_is_there_in_its_pinned_version(bill: dict[str, Any]) -> None:
    pinned = {(each.name, each.version) for each in read_pinned(CONSTRAINTS.read_text())}
    found = {component["name"]: component for component in bill["components"]}
    assert {(name, component["version"]) for name, component in found.items()} <= pinned
    for requirement in PROJECT["dependencies"]:
        assert found[name_of(requirement)]["scope"] == "required", requirement
    optional = {name for name, component in found.items() if component["scope"] == "optional"}
    assert {"sqlalchemy", "s3fs", "onnx", "ray", "uvicorn"} <= optional
    assert {"cffi", "sympy"} <= found.keys() - optional, "what the dependencies need is required, too"
    assert not {"pytest", "mypy", "ruff"} & found.keys()


def test_the_graph_reaches_every_component(bill: dict[str, Any]) -> None:
    needs = {entry["ref"]: set(entry.get("dependsOn", ())) for entry in bill["dependencies"]}
    reached, pending = set[str](), ["moonfed"]
    while pending:
        ref = pending.pop()
        if ref not in reached:
            reached.add(ref)
            pending.extend(needs[ref])
    assert reached - {"moonfed"} == {component["bom-ref"] for component in bill["components"]}
