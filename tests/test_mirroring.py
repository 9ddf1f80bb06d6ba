"""The layout of the tests: every module of 60 lines or more has a test file of its own, or a reason why not."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("common", "proto", "client", "export", "serving", "release", "edge_client", "coordinator", "experiments")
CONTRACT = ("common", "proto")
SMALL = 60  # lines
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def modules() -> list[str]:
    """The modules that need tests, such as `edge_client/agent/session.py`; the contract's begin with its folder."""
    found = []
    for part in PARTS:
        root = ROOT / part / "moonfed" / ("" if part in CONTRACT else part)
        for file in root.rglob("*.py"):
            name = f"{part}/{file.relative_to(root).as_posix()}"
            if file.name != "__init__.py" and not name.startswith("proto/v1/"):
                found.append(name)
    return sorted(found)


def size(module: str) -> int:
    part, _, rest = module.partition("/")
    root = ROOT / part / "moonfed" / ("" if part in CONTRACT else part)
    return len((root / rest).read_text().splitlines())


def mirror_of(module: str) -> Path:
    path = ROOT / "tests" / module
    return path.with_name(f"test_{path.name}")


def exceptions() -> set[str]:
    """The modules that the guide lists as exceptions."""
    text = " ".join(CONTRIBUTING.read_text().split())
    listed = text.partition("Of the modules with 60 lines or more")[2].partition(" 4. ")[0]
    found: set[str] = set()
    for names, package in re.findall(r"((?:`[a-z_]+\.py`(?:,| and)? )+)of `moonfed\.([a-z_.]+)`", listed):
        found |= {f"{package.replace('.', '/')}/{name}" for name in re.findall(r"`([a-z_]+\.py)`", names)}
    return found


def test_every_module_has_its_own_test_file_or_a_reason_in_the_guide() -> None:
    lacking = {module for module in modules() if size(module) >= SMALL and not mirror_of(module).exists()}
    assert lacking == exceptions()
