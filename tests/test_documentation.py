"""Documents refer only to files that exist, and stay within 100 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tutorial import SAVED

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
TOP_LEVEL = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
PATH = re.compile(rf"(?:{'|'.join(TOP_LEVEL)})/[\w./-]*")
GENERATED = ("build/",)
SOURCES = [
    f"/{path.relative_to(ROOT)}"
    for part in TOP_LEVEL
    if part not in {"build", "data", "docs"}
    for path in (ROOT / part).rglob("*.*")
    if path.suffix in {".py", ".proto"}
]
WIDTH = 100


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub derives them."""
    headings = HEADING.findall(FENCE.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"https?:|mailto:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (document.parent / file).resolve() if file else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_repository_paths_exist(document: Path) -> None:
    quoted = CODE.findall(FENCE.sub("", document.read_text()))
    paths = [text for text in quoted if PATH.fullmatch(text) and not text.startswith(GENERATED)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_is_wrapped(document: Path) -> None:
    """Tables, quoted output, indented commands and lines with a web link may be longer."""
    lines = FENCE.sub("", document.read_text()).splitlines()
    prose = [line for line in lines if not line.startswith(("|", "    ")) and "](http" not in line]
    assert [line for line in prose if len(line) > WIDTH] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_exist(document: Path) -> None:
    """Modules may be named by the end of their path, such as `rounds/settings.py`; readers of tutorials save some."""
    quoted = CODE.findall(FENCE.sub("", document.read_text()))
    modules = [text for text in quoted if re.fullmatch(r"[\w/]+\.(py|proto)", text)]
    known = [*SOURCES, *(f"/{name}" for name, _ in SAVED.findall(document.read_text()))]
    assert [name for name in modules if not any(source.endswith(f"/{name}") for source in known)] == []


@pytest.mark.parametrize("document", ["README.md", "docs/security.md"])
def test_documents_warn_that_a_plans_author_can_read_the_data(document: str) -> None:
    """No check of operators can prevent that, so the documents must say so."""
    text = " ".join((ROOT / document).read_text().replace("*", "").split())
    assert re.search(r"[Aa]uthor(?: of a plan)? can read the data that it trains on", text)
