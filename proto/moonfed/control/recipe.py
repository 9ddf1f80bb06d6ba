"""Recipes: the settings of a run in a file, and of the fleet on which it is simulated before.

`run start` uses the keys of the run; `moonfed-experiments simulate` uses both. So what was simulated is what runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moonfed.control.run_settings import DEFENCE
from moonfed.errors import InvalidInput
from moonfed.files import require_file

RECIPE_BYTES = 1 << 20  # at most
FLEET_KEYS = (  # of a simulation alone
    "name", "target", "train_samples", "test_samples",
    "parties", "partition", "beta", "by", "partition_seed", "dropouts", "stragglers",
)  # fmt: skip
_BARE = re.compile("[A-Za-z0-9_-]+")  # keys that need no quotes


def read_recipe_file(path: Path) -> dict[str, Any]:
    """Read a recipe's keys and tables from TOML, or from JSON as reports have it; InvalidInput if it is neither."""
    import tomllib  # which Python 3.10 does not have

    require_file("recipe", path)
    try:
        with path.open("rb") as file:
            content = file.read(RECIPE_BYTES + 1)
        if len(content) > RECIPE_BYTES:
            raise InvalidInput(f"{path} has more than {RECIPE_BYTES:,} bytes; is it a recipe?")
        return dict(json.loads(content) if content.lstrip().startswith(b"{") else tomllib.loads(content.decode()))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error


def run_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's keys of the run, without those of the simulated fleet."""
    return {key: value for key, value in document.items() if key not in FLEET_KEYS}


def override(recipe: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's keys with the given ones in their place.

    What is given against malicious devices replaces the recipe's trust, and trust replaces a recipe's defence. The
    settings of another reducer do not apply.
    """
    dropped: tuple[str, ...] = ()
    if given.get("trusting"):
        dropped = DEFENCE
    elif any(name in given for name in DEFENCE):
        dropped = ("trusting", "reducer_settings") if "reducer" in given else ("trusting",)
    return {**{key: value for key, value in recipe.items() if key not in dropped}, **given}


def to_toml(document: Mapping[str, Any]) -> str:
    """Return keys and tables as TOML, tables last. Names and text are quoted as in JSON, which TOML reads alike."""
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping) and value}
    lines = [f"{key} = {_literal(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{_key(key)} = {_literal(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _literal(key)


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
