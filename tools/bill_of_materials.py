"""The bill of materials (SBOM) of moonfed's wheel, in CycloneDX.

It names the wheel by its sha256, and every distribution that the wheel needs, in the version pinned in constraints.txt;
those of extras are optional. The same input gives the same bytes: there is no time stamp.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5
from zipfile import ZipFile

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement

from tools.lock_requirements import CONSTRAINTS, normalised, read_pinned

DEVELOPMENT = "dev"  # the extra that only development needs


def bill_of_materials(wheel: Path) -> bytes:
    """Return the wheel's bill of materials, CycloneDX JSON 1.6 as UTF-8."""
    metadata = Parser().parsestr(_metadata(wheel))
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    product = Component(
        type=ComponentType.LIBRARY,
        bom_ref="moonfed",
        name="moonfed",
        version=metadata["Version"],
        purl=PackageURL(type="pypi", name="moonfed", version=metadata["Version"]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
        licenses=[DisjunctiveLicense(id=metadata["License-Expression"])],
    )
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    graph = _graph(requirements)
    required = _reachable((name_ for name_, extra in _roots(requirements) if not extra), graph)
    components = {name: _component(name, version, name in required) for name, version in _versions(graph)}
    bill = Bom(serial_number=uuid5(NAMESPACE_OID, sha256), components=components.values())
    bill.metadata.component = product
    bill.register_dependency(product, [components[name] for name, _ in _roots(requirements) if name in components])
    for name, component in components.items():
        bill.register_dependency(component, [components[each] for each in graph[name] if each in components])
    document: dict[str, Any] = json.loads(
        make_outputter(bill, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    )
    del document["metadata"]["timestamp"]
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def _metadata(wheel: Path) -> str:
    with ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def _roots(requirements: Iterable[Requirement]) -> Iterator[tuple[str, bool]]:
    """Yield the wheel's requirements, and whether they belong to an extra; those of development are omitted."""
    for requirement in requirements:
        marker = str(requirement.marker or "")
        if requirement.name != "moonfed" and f'extra == "{DEVELOPMENT}"' not in marker:
            yield normalised(requirement.name), "extra ==" in marker


def _graph(requirements: Iterable[Requirement]) -> dict[str, list[str]]:
    """Return the requirements of each distribution, starting with the wheel's, from the installed metadata."""
    graph: dict[str, list[str]] = {}
    pending = [(normalised(each.name), each.extras) for each in requirements if _is_ours(each)]
    while pending:
        name, extras = pending.pop()
        needed = [] if name == "moonfed" else list(_needed(name, extras))
        known = graph.setdefault(name, [])
        fresh = [each for each in needed if normalised(each.name) not in known]
        known.extend(dict.fromkeys(normalised(each.name) for each in fresh))
        pending.extend((normalised(each.name), each.extras) for each in fresh)
    graph.pop("moonfed", None)
    return graph


def _is_ours(requirement: Requirement) -> bool:
    return f'extra == "{DEVELOPMENT}"' not in str(requirement.marker or "")


def _needed(name: str, extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements of an installed distribution in this environment."""
    try:
        texts = requires(name) or []
    except PackageNotFoundError:  # for another platform
        return
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _reachable(roots: Iterable[str], graph: Mapping[str, list[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(graph.get(name, ()))
    return found


def _versions(graph: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield each distribution with the version pinned for this Python."""
    environment = {(each.name): each.version for each in read_pinned(CONSTRAINTS.read_text()) if _applies(each.marker)}
    for name in sorted(graph):
        if name in environment:
            yield name, environment[name]


def _applies(marker: str) -> bool:
    return not marker or bool(Requirement(f"x; {marker}").marker.evaluate())  # type: ignore[union-attr]


def _component(name: str, version: str, required: bool) -> Component:
    url = PackageURL(type="pypi", name=name, version=version)
    scope = ComponentScope.REQUIRED if required else ComponentScope.OPTIONAL
    return Component(
        type=ComponentType.LIBRARY, bom_ref=url.to_string(), name=name, version=version, purl=url, scope=scope
    )
