"""A run's settings as the coordinator reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moonfed.control.recipe import override, read_recipe_file, run_keys
from moonfed.control.run_settings import RunSettings


def settings_text(recipe: Path | RunSettings | None, settings: Mapping[str, object]) -> str:
    """Return the settings of a recipe, overridden by others, as a message has them; those in neither are left out."""
    given = override(_keys(recipe), settings)
    return RunSettings.read(given).to_json(given)


def _keys(recipe: Path | RunSettings | None) -> dict[str, Any]:
    """Return the keys of a run's recipe."""
    if isinstance(recipe, Path):
        return run_keys(read_recipe_file(recipe))
    return recipe.to_document() if recipe else {}
