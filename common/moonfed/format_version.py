"""Versions of formats that outlive a program: docs/versions.md lists them all.

A format's version is text that ends in a number, such as "moonfed-bundle/4". A reader names the versions that it reads,
its own first, and refuses any other before it looks at the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.version import RELEASE

ADVICE = "install the release that wrote it"
_NUMBER = re.compile(r"[/.-][0-9]{1,9}(?=\.?$|\+json$)", re.ASCII)  # of "moonfed-bundle/4"; a media type may lack it
_SHOWN = 100  # characters of a field's path


def require_readable(subject: str, found: object, readable: Sequence[str]) -> None:
    """Raise VersionMismatch for another version of a format, and InvalidInput for anything else.

    `subject`: what has the format, in words. `readable`: the versions that this release reads.
    """
    if found in readable:
        return
    versions = " and ".join(map(repr, readable))
    if isinstance(found, str) and _NUMBER.sub("", found) == _NUMBER.sub("", readable[0]):
        raise VersionMismatch(
            f"{subject} has format {found!r}; moonfed {RELEASE} reads {versions}; {ADVICE}",
            field="format",
            value=found,
        )
    shown = found[:_SHOWN] if isinstance(found, str) else found
    raise InvalidInput(f"{subject} has format {shown!r}; it must be {versions}", field="format", value=shown)


def refuse_unknown_fields(subject: str, document: object, known: object) -> None:
    """Raise VersionMismatch for a field of a signed document that this release would not honour.

    `known`: the document as this release writes what it has read.
    """
    if field := _unknown_field(document, known):
        raise VersionMismatch(
            f"{subject} has the field {field!r}, which moonfed {RELEASE} does not know; {ADVICE}", field=field
        )


def known_fields(kind: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a document that a dataclass has; a later release may have written others."""
    return {each.name: document[each.name] for each in fields(kind) if each.name in document}


def _unknown_field(document: object, known: object) -> str:
    """Return the path of the first field that only the document has; empty if there is none."""
    if isinstance(document, Mapping) and isinstance(known, Mapping):
        if unknown := sorted(str(name) for name in document.keys() - known.keys()):
            return unknown[0][:_SHOWN]
        inner = ((str(name), document[name], known[name]) for name in document)
    elif isinstance(document, list) and isinstance(known, list):
        inner = ((str(at), one, other) for at, (one, other) in enumerate(zip(document, known, strict=False)))
    else:
        return ""
    return next((f"{name}.{path}"[:_SHOWN] for name, one, other in inner if (path := _unknown_field(one, other))), "")
