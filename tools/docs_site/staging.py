"""A copy of docs/ in which links to files outside docs/ lead to pages with those files.

Builders know only the pages in one folder, and their common ground has no way to resolve other links. So each linked
source file becomes a page in `source/`, and documents outside docs/, such as CONTRIBUTING.md, become pages likewise.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.docs_site.source_page import is_text, source_page

DOCS, SOURCE = "docs", "source"
ALWAYS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # whoever links to them
LEFT_OUT = ("results/",)  # raw figures, of which results.md shows what matters
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|/")


def rewrite_links(text: str, rewrite: Callable[[str], str]) -> str:
    """Return a Markdown text with `rewrite` applied to its relative links, except in code blocks."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_rewritten(text[end : fence.start()], rewrite), fence[0]]
        end = fence.end()
    return "".join([*parts, _rewritten(text[end:], rewrite)])


def _rewritten(prose: str, rewrite: Callable[[str], str]) -> str:
    return _LINK.sub(lambda found: found[0] if _ELSEWHERE.match(found[0]) else rewrite(found[0]), prose)


class Staging:
    """A folder of pages, filled from a repository."""

    def __init__(self, repository: Path, pages: Path) -> None:
        self._repository = repository.resolve()
        self._pages = pages
        self._staged: set[str] = set()

    def stage(self) -> None:
        """Copy docs/, and every file outside it that a page links to; the folder must not exist."""
        for document in ALWAYS:
            self._page_for(self._repository / document)
        root = self._repository / DOCS
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            name = file.relative_to(root).as_posix()
            if not name.startswith(LEFT_OUT):
                self._write(file, name)

    def _write(self, file: Path, name: str) -> None:
        target = self._pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            links = rewrite_links(file.read_text(), lambda link: self._link(file, name, link))
            target.write_text(links)
        elif file.is_dir() or (is_text(file) and name.startswith(f"{SOURCE}/")):
            page = source_page(file, file.relative_to(self._repository).as_posix())
            base = file / "_" if file.is_dir() else file
            target.write_text(rewrite_links(page, lambda link: self._link(base, name, link)))
        else:
            shutil.copyfile(file, target)

    def _link(self, file: Path, name: str, link: str) -> str:
        """Return where a link of a repository's file leads from its page, and stage what it leads to."""
        path, mark, anchor = link.partition("#")
        target = Path(os.path.normpath(file.parent / path))
        if not target.exists() or not target.is_relative_to(self._repository):
            return link  # which the builders report
        page = self._page_for(target)
        keeps_anchor = target.suffix == ".md"
        return os.path.relpath(page, Path(name).parent) + (f"{mark}{anchor}" if keeps_anchor else "")

    def _page_for(self, target: Path) -> str:
        """Return the name of the page that shows a file or folder, and stage it if it is outside docs/."""
        page = self._page_of(target)
        if page.startswith(f"{SOURCE}/") and page not in self._staged:
            self._staged.add(page)
            self._write(target, page)
        return page

    def _page_of(self, target: Path) -> str:
        """Return the name of the page that shows a file or folder."""
        path = target.relative_to(self._repository).as_posix()
        if target.is_relative_to(self._repository / DOCS):
            inside = target.relative_to(self._repository / DOCS).as_posix()
            return f"{inside}/README.md" if target.is_dir() else inside
        if target.is_dir():
            return f"{SOURCE}/{path}/README.md"
        return f"{SOURCE}/{path}.md" if is_text(target) and target.suffix != ".md" else f"{SOURCE}/{path}"
