"""The navigation: every page of docs/ is in it, and no other."""

from __future__ import annotations

from pathlib import Path

from tools.docs_site.config import SERIES, pages_in, read_config, site_config, title_of

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def navigation() -> set[str]:
    config = site_config(read_config(ROOT / "mkdocs.yml"), ROOT, DOCS, ROOT / "build" / "site")
    return pages_in(config["nav"])


def test_every_page_is_in_the_navigation() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert pages - navigation() == set(), "add a line to mkdocs.yml"
    assert navigation() - pages == set()


def test_decisions_follow_their_index_without_lines_of_their_own() -> None:
    config = read_config(ROOT / "mkdocs.yml")
    assert SERIES[0] in pages_in(config["nav"])
    assert "decisions/0003-compiled-training-plan.md" not in pages_in(config["nav"])
    assert "decisions/0003-compiled-training-plan.md" in navigation()


def test_a_pages_title_is_its_heading(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# Exit code `2`\n\n# Not this\n")
    assert title_of(page) == "Exit code 2"
