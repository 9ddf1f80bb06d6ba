"""The page about versions has every format of ours, with the version that the code writes."""

from __future__ import annotations

import re
from pathlib import Path

from moonfed import version
from moonfed.bundle import manifest
from moonfed.edge_client.state import state_version
from moonfed.experiments.fleet import checkpoint
from moonfed.export import table_description
from moonfed.models import release_manifest
from moonfed.signing import statement, trust
from moonfed.transport import join_token

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text()
FORMATS = {
    "wire contract": version.CONTRACT_VERSION,
    "device's state directory": state_version.FORMAT,
    "join token": join_token.VERSION,
    "trust file": trust.KIND,
    "signature of a bundle": statement.BUNDLE.media_type,
    "signature of a release": statement.RELEASE.media_type,
    "bundle": manifest.FORMAT,
    "plan": version.PLAN_INTERFACE,
    "plan as graphs": version.GRAPH_PLAN_INTERFACE,
    "release": release_manifest.FORMAT,
    "description of columns": table_description.FORMAT,
    "checkpoint of a simulation": checkpoint.FORMAT,
}
SOURCES = ("common", "proto", "cli", "client", "export", "serving", "release", "edge_client", "coordinator",
           "experiments")  # fmt: skip
VERSIONED = re.compile(r'"((?:moonfed-[a-z]+[/-]|torchscript/|graph/)[0-9]+)"|"(application/vnd\.moonfed\.[^"]+)"')


def test_the_table_names_the_versions_that_the_code_writes() -> None:
    _, _, after = PAGE.partition("\n## Formats\n")
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]+)` \|", after, re.MULTILINE)
    assert dict(rows) == FORMATS


def test_the_table_lacks_no_format_of_the_code() -> None:
    found = set()
    for part in SOURCES:
        for file in (ROOT / part).rglob("*.py"):
            found |= {one or other for one, other in VERSIONED.findall(file.read_text())}
    assert found == set(FORMATS.values()) - {version.CONTRACT_VERSION}
