"""Facts about a release that users' scripts rely on: those that the next release lacks, or asks for, break scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.prometheus import ROW

PROGRAMS = ("moonfed-client", "moonfed-coordinator", "moonfed-experiments", "moonfed-export")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ITEM = re.compile(r"^- `([^`]+)`: ((?:.|\n  )*)", re.MULTILINE)
ROW_OF_KEY = re.compile(r"\| (`[^`]+`|\d+) \| ([^|]*?) \|")
LINK = re.compile(r"\[([\w-]+)\]\([\w-]+\.md\)")
LABEL = re.compile(r"`(\w+)`")
EXPRESSION = re.compile(r"moonfed_\w+")
# Prints each name of the Python client with its parameters or fields, and the parameters that must be given.
CLIENT = """
import dataclasses, inspect, json
import moonfed.client as client

def described(name, found):
    if dataclasses.is_dataclass(found):
        return {f"{name}.{field.name}": [] for field in dataclasses.fields(found)}
    if not inspect.isclass(found):
        return {}
    methods = {f"{name}.{key}": value for key, value in inspect.getmembers(found, callable) if key[0] != "_"}
    facts = {}
    for place, method in {name: found.__init__, **methods}.items():
        taken = [one for key, one in inspect.signature(method).parameters.items() if key != "self"]
        facts |= {f"{place}({one.name})": [] for one in taken}
        facts[place] = [one.name for one in taken if one.default is one.empty and one.kind < one.VAR_POSITIONAL]
    return facts

facts = {name: [] for name in client.__all__}
for name in client.__all__:
    facts |= described(name, getattr(client, name))
print(json.dumps(facts))
"""


def offered(docs: Path) -> set[str]:
    """Return the commands with their options, settings, exit codes and metrics, from a release's generated pages."""
    pages = (docs / "reference" / "settings.md", docs / "errors" / "README.md")
    rows = {row for page in pages for row in _rows(page)}
    return {*commands(docs), *(f"{of} {form}" for of, form, _ in _items(docs)), *rows, *_metrics(docs)}


def commands(docs: Path) -> set[str]:
    return {f"{program} {name}" for program in PROGRAMS for name in SECTION.findall(_page(docs, program))}


def demanded(docs: Path) -> set[tuple[str, str]]:
    """Return (command, argument or option) for whatever commands do not run without."""
    return {(command, form) for command, form, text in _items(docs) if text.endswith("Required.")}


def used_metrics(deploy: Path) -> set[str]:
    """Return the metrics in the alerts and dashboards of a release."""
    rules = (deploy / "prometheus" / "moonfed.rules.yml").read_text()
    texts = [path.read_text() for path in (deploy / "grafana" / "dashboards").glob("*.json")]
    texts += re.findall(r"expr: ((?:.|\n {10})*)", rules)
    found = {name for text in texts for name in EXPRESSION.findall(text)}
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def _items(docs: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (command, argument or option, text); an option that takes a value ends with VALUE."""
    for program in PROGRAMS:
        _, *sections = SECTION.split(_page(docs, program))
        for command, text in zip(sections[::2], sections[1::2], strict=True):
            for form, about in ITEM.findall(text):
                name, *value = form.split(" ")
                yield f"{program} {command}", f"{name}{' VALUE' if value else ''}", about.strip()


def _page(docs: Path, program: str) -> str:
    return (docs / "reference" / f"{program}.md").read_text()


def _metrics(docs: Path) -> Iterator[str]:
    for name, kind, labels in ROW.findall((docs / "monitoring.md").read_text()):
        yield " ".join((kind, name, *LABEL.findall(labels)))


def _rows(page: Path) -> Iterator[str]:
    """Yield the key of each row of a page's tables with its option, or with each page that the row names."""
    for line in page.read_text().splitlines():
        if row := ROW_OF_KEY.match(line):
            key, second = row.groups()
            yield from [f"{key} {name}" for name in LINK.findall(line)] or [key]
            if second.startswith("`--"):
                yield f"{key} {second}"
