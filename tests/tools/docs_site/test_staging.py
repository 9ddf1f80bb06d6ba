"""Pages whose links to source files lead to pages of the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs_site.staging import Staging, rewrite_links

NOTEBOOK = """{"cells": [{"cell_type": "markdown", "source": ["# Notes"]},
 {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]}]}"""
FILES = {
    "README.md": "See [the docs](docs/a.md#first).",
    "CHANGELOG.md": "Nothing yet.",
    "CONTRIBUTING.md": "Follow [the rules](docs/decisions/README.md).",
    "SECURITY.md": "Write to us.",
    "deploy/proxy.cfg": "mode tcp",
    "examples/notes.ipynb": NOTEBOOK,
    "examples/deep/run.toml": "rounds = 3",
    "docs/README.md": "[contribute](../CONTRIBUTING.md) [a](a.md) [examples](../examples/) [m](https://example.org)",
    "docs/a.md": "# A\n\n[proxy](../deploy/proxy.cfg) [gone](../gone.md)\n\n```sh\n[x](../deploy/proxy.cfg)\n```\n",
    "docs/decisions/README.md": "[all](../../examples/notes.ipynb#L1) [decisions](../decisions/)",
    "docs/results/raw.jsonl": "{}",
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "repository" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    Staging(tmp_path / "repository", tmp_path / "pages").stage()
    return tmp_path / "pages"


def test_links_to_source_files_lead_to_pages_with_them(pages: Path) -> None:
    text = (pages / "a.md").read_text()
    assert "[proxy](source/deploy/proxy.cfg.md)" in text
    assert (pages / "source/deploy/proxy.cfg.md").read_text().split("\n") == [
        "# deploy/proxy.cfg",
        "",
        "`````cfg",
        "mode tcp",
        "`````",
        "",
    ]


def test_links_in_code_and_broken_ones_stay(pages: Path) -> None:
    text = (pages / "a.md").read_text()
    assert "```sh\n[x](../deploy/proxy.cfg)\n```" in text
    assert "[gone](../gone.md)" in text  # which the builders report


def test_documents_outside_docs_become_pages(pages: Path) -> None:
    assert (pages / "source/README.md").read_text() == "See [the docs](../a.md#first)."
    assert (pages / "source/CONTRIBUTING.md").read_text() == "Follow [the rules](../decisions/README.md)."
    assert "[contribute](source/CONTRIBUTING.md) [a](a.md)" in (pages / "README.md").read_text()


def test_folders_and_notebooks_become_pages(pages: Path) -> None:
    assert (pages / "source/examples/README.md").read_text() == (
        "# examples/\n\n- [deep](deep/README.md)\n- [notes.ipynb](notes.ipynb.md)\n"
    )
    assert "rounds = 3" in (pages / "source/examples/deep/run.toml.md").read_text()
    notebook = (pages / "source/examples/notes.ipynb.md").read_text()
    assert notebook.split("`````") == [
        "# examples/notes.ipynb\n\n# Notes\n\n",
        "python\n1 + 1\n",
        "\n\n",
        "text\n2\n",
        "\n",
    ]
    index = (pages / "decisions/README.md").read_text()
    assert index == "[all](../source/examples/notes.ipynb.md) [decisions](README.md)"


def test_raw_figures_are_left_out(pages: Path) -> None:
    assert not (pages / "results").exists()


def test_only_relative_links_are_rewritten() -> None:
    assert rewrite_links("[a](b) [c](#d) [e](mailto:f) [g](/h)", str.upper) == "[a](B) [c](#d) [e](mailto:f) [g](/h)"
