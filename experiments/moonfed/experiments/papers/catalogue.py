"""All recipes, by name."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.errors import InvalidInput
from moonfed.experiments.papers import extra_recipes, fedprox_recipes, fedssc_recipes, moon_figures, moon_tables
from moonfed.experiments.papers.recipe import Recipe

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *moon_tables.RECIPES,
        *moon_figures.RECIPES,
        *fedssc_recipes.RECIPES,
        *fedprox_recipes.RECIPES,
        *extra_recipes.RECIPES,
    )
}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name; InvalidInput lists all names."""
    if name not in RECIPES:
        raise InvalidInput(field="recipe", value=name, allowed=f"one of {', '.join(RECIPES)}")
    return RECIPES[name]
