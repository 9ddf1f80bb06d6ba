"""All recipes, by name."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.papers import fedssc, moon_figures, moon_tables, ours, shi
from experiments.papers.cells import Recipe
from moonfed.errors import InvalidInput

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (*moon_tables.RECIPES, *moon_figures.RECIPES, *fedssc.RECIPES, *shi.RECIPES, *ours.RECIPES)
}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name; InvalidInput lists the names there are."""
    if name not in RECIPES:
        raise InvalidInput(f"recipe is {name!r}; it must be one of {', '.join(RECIPES)}")
    return RECIPES[name]
