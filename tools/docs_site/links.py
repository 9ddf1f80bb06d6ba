"""Links of a built site: every link, picture, style and script must lead to a file of the site, every anchor to an id.

Links to other sites are not followed, but nothing that a page loads may be on one: the site works offline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ERROR_PAGE = "404.html"  # is served at any address, so its links begin at the site's root
_LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src"}
_LOADED_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload"}


@dataclass
class PageLinks(HTMLParser):
    """The ids of a page, the links that a reader may follow, and the files that the page loads."""

    ids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called, links to and loads."""
        found = {name: value for name, value in attrs if value}
        self.ids.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag == "link" and _LOADED_RELATIONS & set(found.get("rel", "").split()) and "href" in found:
            self.loaded.add(found["href"])
        elif _LOADED.get(tag, "") in found:
            self.loaded.add(found[_LOADED[tag]])


def broken_links(site: Path) -> list[str]:
    """Return one sentence for each link of a site that leads nowhere, or loads something from elsewhere."""
    site = site.resolve()
    pages = {page: _read(page) for page in sorted(site.rglob("*.html"))}
    return [
        f"{page.relative_to(site).as_posix()}: {problem}"
        for page, content in pages.items()
        if page.name != ERROR_PAGE
        for problem in _problems(site, page, content, pages)
    ]


def _read(page: Path) -> PageLinks:
    links = PageLinks()
    links.feed(page.read_text())
    return links


def _problems(site: Path, page: Path, content: PageLinks, pages: dict[Path, PageLinks]) -> Iterator[str]:
    for link in sorted(content.loaded):
        if urlsplit(link).scheme not in ("", "data") or link.startswith("//"):
            yield f"loads {link}, which is on another site"
    for link in sorted(content.links | content.loaded):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        target = target / "index.html" if target.is_dir() else target
        if not target.is_relative_to(site) or not target.is_file():
            yield f"{link} leads to no file of the site"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
            yield f"{link} leads to no heading or other element of that page"
