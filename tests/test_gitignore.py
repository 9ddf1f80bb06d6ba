"""Git ignores what the README's steps create, keys and data among it."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
IGNORED = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if not line.startswith("#")]
CREATED = re.compile(
    r"""(?:--(?:output|state|repository|data)[ ]|[^-]>[ ]|\.save\("|serve[ ]|`)   # options, redirection, Python, prose
        ([a-z][\w-]*(?:\.(?:onnx|png|json))?)(?=[\s"`/])""",
    re.VERBOSE,
)


def created() -> set[str]:
    """Return the first components of the relative paths that the README's commands write."""
    blocks = re.findall(r"^```(?:sh|python)\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return {found for block in blocks for found in CREATED.findall(block)}


def test_the_readme_creates_some_files() -> None:
    assert created() >= {"parts", "digits-bundle", "join-token", "cam-1", "seven.png", "models", "data", "results"}


def test_git_ignores_what_the_readme_creates() -> None:
    names = [*created(), "digits.int8.onnx", "digits.report.json", "request.json"]
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in IGNORED)] == []
