"""The checker of a built site's links, on a site with one mistake of each kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.docs_site.links import broken_links

PAGE = """<html><head><link rel="stylesheet" href="style.css"><link rel="canonical" href="https://example.org/"></head>
<body><h1 id="top">Top</h1><a href="#top">up</a> <a href="https://example.org">elsewhere</a>
<a href="other/">folder</a> <a href="other/index.html#part">part</a> <a href="mailto:a@example.org">mail</a></body>"""
BROKEN = """<h1 id="part">Part</h1><a href="../gone.html">gone</a> <a href="../index.html#nowhere">nowhere</a>
<a href="../../outside.html">outside</a> <a href="#absent">absent</a> <script src="https://example.org/a.js"></script>
<img src="missing.png"> <a href="../index.html#top">fine</a>"""


def test_every_kind_of_broken_link_is_found(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "other").mkdir(parents=True)
    (tmp_path / "outside.html").touch()
    (site / "style.css").touch()
    (site / "index.html").write_text(PAGE)
    (site / "404.html").write_text('<a href="/anywhere">home</a>')
    (site / "other" / "index.html").write_text(BROKEN)
    assert broken_links(site) == [
        "other/index.html: loads https://example.org/a.js, which is on another site",
        "other/index.html: #absent leads to no heading or other element of that page",
        "other/index.html: ../../outside.html leads to no file of the site",
        "other/index.html: ../gone.html leads to no file of the site",
        "other/index.html: ../index.html#nowhere leads to no heading or other element of that page",
        "other/index.html: missing.png leads to no file of the site",
    ]


def test_a_builders_page_with_a_broken_link_is_found(tmp_path: Path) -> None:
    """Zensical does not look at links in HTML, and the checker does."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text('# Home\n\n[up](#home) <a href="nowhere.html">broken</a>\n')
    (tmp_path / "mkdocs.yml").write_text("site_name: broken\nuse_directory_urls: false\ntheme:\n  font: false\n")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert broken_links(tmp_path / "site") == ["index.html: nowhere.html leads to no file of the site"]
