"""Check every pinned dependency against published advisories: `make audit`.

Exit codes: 0, no advisory; 1, advisories, one line each; 10, no advisory database is reachable, or it does not know
some distributions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from tools.lock_requirements import CONSTRAINTS, DIRECTORY, read_pinned

FOUND, UNREACHABLE = 1, 10
DATABASES = ("pypi", "osv")  # pip-audit's names
_COMMAND = (sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off")
Dependency = dict[str, Any]


class Unreachable(Exception):
    """An advisory database did not answer."""


def pins() -> list[tuple[str, str]]:
    """Return the name and version of every pinned distribution, for all Python versions."""
    texts = [CONSTRAINTS.read_text(), *(path.read_text() for path in sorted(DIRECTORY.glob("*.txt")))]
    return sorted({(pinned.name, pinned.version) for text in texts for pinned in read_pinned(text)})


def passes(pinned: Iterable[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Split pins into lists with one version of each name, as pip-audit requires."""
    lists: list[dict[str, str]] = []
    for name, version in pinned:
        free = next((found for found in lists if name not in found), None)
        if free is None:
            lists.append(free := {})
        free[name] = version
    return [sorted(found.items()) for found in lists]


def ask(database: str, pinned: Sequence[tuple[str, str]], command: Sequence[str] = _COMMAND) -> list[Dependency]:
    """Return pip-audit's entry for each distribution; raise Unreachable if the database did not answer."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name}=={version}\n" for name, version in pinned)
        file.flush()
        asked = [*command, "--vulnerability-service", database, "--format", "json", "--requirement", file.name]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    try:
        entries: list[Dependency] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unreachable(f"{database}: {lines[-1][:200]}") from error
    if all("skip_reason" in entry for entry in entries):  # for example if only a package mirror is reachable
        raise Unreachable(f"{database}: knows none of {len(entries)} distributions")
    return entries


def audit(command: Sequence[str] = _COMMAND) -> int:
    """Ask the databases in turn until one answers; print its findings, and return the exit code."""
    reasons = []
    lists = passes(pins())
    for database in DATABASES:
        try:
            entries = [entry for pinned in lists for entry in ask(database, pinned, command)]
        except Unreachable as error:
            reasons.append(str(error))
            continue
        return _report(database, entries)
    print(f"no advisory database is reachable, so nothing was checked ({'; '.join(reasons)})", file=sys.stderr)
    return UNREACHABLE


def _report(database: str, entries: Sequence[Dependency]) -> int:
    advisories, unknown = 0, 0
    for entry in entries:
        if "skip_reason" in entry:
            unknown += 1
            print(f"{entry['name']}: not checked: {entry['skip_reason']}")
        for advisory in entry.get("vulns", ()):
            advisories += 1
            fixed = ", ".join(advisory["fix_versions"]) or "no release"
            print(f"{entry['name']} {entry['version']}: {advisory['id']}, fixed in {fixed}")
    checked = f"{len(entries) - unknown} of {len(entries)} distributions checked with {database}"
    print(f"{checked}: {advisories} advisories")
    return FOUND if advisories else UNREACHABLE if unknown else 0


if __name__ == "__main__":
    sys.exit(audit())
