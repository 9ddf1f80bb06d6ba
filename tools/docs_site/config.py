"""The configuration of the staged pages: that of mkdocs.yml, with every decision and error in the navigation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SERIES = ("decisions/README.md", "errors/README.md")  # indexes whose pages need no line in mkdocs.yml


def site_config(config: dict[str, Any], repository: Path, pages: Path, site: Path) -> dict[str, Any]:
    """Return a configuration of other pages than docs/, for a file next to their folder and the site's.

    Zensical takes no other paths than relative ones below that file.
    """
    changed = {**config, "docs_dir": pages.name, "site_dir": site.name, "strict": True}
    changed["validation"] = {**config["validation"], "not_found": "warn"}
    changed["nav"] = [_expanded(entry, pages) for entry in config["nav"]]
    changed["plugins"] = [_with_paths(plugin, repository) for plugin in config["plugins"]]
    return changed


def _expanded(entry: Any, pages: Path) -> Any:
    """Return an entry of the navigation in which the index of a series is followed by its pages."""
    if isinstance(entry, str):
        return entry
    ((title, content),) = entry.items()
    if isinstance(content, list):
        return {title: [_expanded(item, pages) for item in content]}
    if content not in SERIES or not (pages / content).exists():
        return entry
    folder = (pages / content).parent
    others = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    return {title: [content, *({title_of(page): page.relative_to(pages).as_posix()} for page in others)]}


def title_of(page: Path) -> str:
    """Return a page's first heading, without the marks of code."""
    return page.read_text().split("\n", 1)[0].lstrip("# ").replace("`", "")


def _with_paths(plugin: Any, repository: Path) -> Any:
    if not isinstance(plugin, dict) or "mkdocstrings" not in plugin:
        return plugin
    python = plugin["mkdocstrings"]["handlers"]["python"]
    paths = [str(repository / path) for path in python["paths"]]
    return {"mkdocstrings": {"handlers": {"python": {**python, "paths": paths}}}}


def read_config(file: Path) -> dict[str, Any]:
    """Read mkdocs.yml."""
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    return content


def pages_in(nav: Any) -> set[str]:
    """Return the pages of a navigation."""
    if isinstance(nav, str):
        return {nav}
    children = nav.values() if isinstance(nav, dict) else nav
    return {page for child in children for page in pages_in(child)}
