"""Options of a reproduction: cells, rounds, seeds, and whether it is a quick run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.errors import InvalidInput
from moonfed.experiments.papers.presets import DATA
from moonfed.experiments.papers.recipe import Cell, Recipe
from moonfed.validate import require_whole

PAPER_SEEDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`dataset`, `methods`: some of the recipe's; empty for all. `rounds`, `seeds`: 0 for the paper's number of them.

    `quick` replaces the data set by the digits, or by a part of CIFAR-10 if there is `data`, and runs a few cells with
    few parties, rounds and epochs: it shows that a recipe works, but not its results.
    """

    output: Path
    data: Path | None = None
    dataset: str = ""
    methods: tuple[str, ...] = ()
    rounds: int = 0
    seeds: int = 0
    augmentation: bool = True
    quick: bool = False
    tune: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rounds", self.rounds), ("seeds", self.seeds)):
            if value:  # 0: the recipe's own
                require_whole(name, value, 1)

    @property
    def seed_numbers(self) -> range:
        """The seeds of the trials."""
        return range(self.seeds or (1 if self.quick else PAPER_SEEDS))

    @property
    def quick_dataset(self) -> str:
        """The data set of a quick run."""
        return "cifar10" if self.data else "digits"


def choose(recipe: Recipe, options: Options) -> Recipe:
    """Reduce a recipe to the requested cells; panels without any are dropped.

    Raises InvalidInput for a data set or a method that the recipe does not have, for a folder of data that is missing,
    and for a quick run of a recipe that the digits cannot show.
    """
    if options.dataset and options.dataset not in recipe.datasets:
        raise InvalidInput(
            field="dataset", value=options.dataset, rest=f"; {recipe.name} has {', '.join(recipe.datasets)}"
        )
    for method in options.methods:
        if method not in recipe.methods:
            raise InvalidInput(f"methods has {method!r}; {recipe.name} has {', '.join(recipe.methods)}")
    panels = tuple(
        replace(
            panel,
            cells=tuple(
                replace(cell, size=recipe.size) for cell in panel.cells if _asked(cell, recipe, options, panel.target)
            ),
        )
        for panel in recipe.panels
    )
    chosen = replace(recipe, panels=tuple(panel for panel in panels if panel.cells))
    _check_data(chosen, options)
    return chosen


def _asked(cell: Cell, recipe: Recipe, options: Options, target: float | str) -> bool:
    if options.dataset and cell.dataset != options.dataset:
        return False
    if options.quick and not (cell.quick and cell.dataset == (options.dataset or recipe.datasets[0])):
        return False
    return not options.methods or cell.method in options.methods or cell.row == target


def _check_data(recipe: Recipe, options: Options) -> None:
    compares_views = any("views" in cell.settings for cell in recipe.cells)
    if compares_views and not options.augmentation:
        raise InvalidInput(f"augmentation is off; {recipe.name} compares augmentations, so it must be on")
    if compares_views and options.quick and not options.data:
        raise InvalidInput(
            f"data is not given; {recipe.name} compares augmentations, and the digits have none: "
            "give the folder with CIFAR-10",
            field="data",
        )
    trained = {cell.dataset for cell in recipe.trained}
    missing = [name for name in trained if not DATA[name].bundled]
    if missing and not options.data and not options.quick:
        raise InvalidInput(f"data is not given; {recipe.name} needs the folder with {', '.join(sorted(missing))}")
