"""`make docs`: builds the site with Zensical in build/site and with mkdocs-material in build/site-mkdocs.

Fails on any warning of either builder, and on any link of either site that leads nowhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tools.docs_site.config import read_config, site_config
from tools.docs_site.links import broken_links
from tools.docs_site.staging import Staging

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / "build"
BUILDERS = {"zensical": "site", "mkdocs": "site-mkdocs"}


def main() -> None:
    """Stage the pages, build both sites and check their links."""
    pages = BUILD / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    Staging(REPOSITORY, pages).stage()
    failed = [problem for builder in BUILDERS for problem in build(builder, pages)]
    for problem in failed:
        print(problem, file=sys.stderr)
    if failed:
        sys.exit(1)
    print(f"the site is {BUILD.name}/site; open {BUILD.name}/site/index.html")


def build(builder: str, pages: Path) -> list[str]:
    """Build the staged pages with one builder; return what is wrong with the site."""
    site = BUILD / BUILDERS[builder]
    shutil.rmtree(site, ignore_errors=True)
    file = BUILD / f"{builder}.yml"
    config = site_config(read_config(REPOSITORY / "mkdocs.yml"), REPOSITORY, pages, site)
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    # One of the two recommends the other on every start.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", builder, "build", "--strict", "--config-file", str(file)]
    ended = subprocess.run(command, env=environment, text=True, capture_output=True)
    if ended.returncode or "warning" in (ended.stdout + ended.stderr).lower():
        return [f"{builder}: {ended.stdout}{ended.stderr}"]
    return [f"{builder}: {problem}" for problem in broken_links(site)]


if __name__ == "__main__":
    main()
