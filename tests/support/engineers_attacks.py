"""Plans that attack the machine of an engineer or an operator, in bundles that a trusted key has signed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE
from tests.support.attack_bundles import ATTACKS, HarmlessPlan
from tests.support.attack_plans import archive_of, with_code
from tests.support.signatures import signed


@dataclass(frozen=True)
class EngineersAttack:
    """An attack that writes a file; `rejection`: a pattern of the inspection's message."""

    plan: Callable[[Path], bytes]
    rejection: str
    on_load: bool  # otherwise only when the plan predicts


def _default_value(path: Path) -> bytes:
    """Return a plan whose method has a default value, which torch computes when it loads the plan."""
    value = f'torch.fill_(torch.from_file("{path}", True, 64, dtype=0), 35)'

    def change(code: str) -> str:
        changed = re.sub(r"(def attack\(self: [\w.]+,\s*inputs: Tensor)\)", rf"\1={value})", code)
        assert changed != code
        return changed

    return with_code(archive_of(HarmlessPlan()), change)


WRITERS: Mapping[str, EngineersAttack] = {
    "__setstate__": EngineersAttack(ATTACKS["__setstate__"].plan, ATTACKS["__setstate__"].rejection, on_load=True),
    "default value": EngineersAttack(_default_value, "a line that torch's printer does not write", on_load=True),
    "from_file": EngineersAttack(ATTACKS["from_file, writing"].plan, "operator 'aten::from_file'", on_load=False),
    "save": EngineersAttack(ATTACKS["save"].plan, "operator 'aten::save'", on_load=False),
}


def hostile(bundle: Bundle, attack: EngineersAttack, path: Path) -> Bundle:
    """Return a signed bundle with a plan that attacks a path."""
    plan = attack.plan(path)
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, PLAN_FILE: ref_of_bytes(plan)})
    contents = {**bundle.contents, PLAN_FILE: plan, MANIFEST_FILE: manifest.to_bytes()}
    return signed(Bundle(manifest, contents))
