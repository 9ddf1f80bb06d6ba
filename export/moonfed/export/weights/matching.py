"""Matching of pretrained tensors with a network's, by name: exactly, or with one prefix dropped and one added.

Never by shape or order alone, which would put weights into layers that they were not trained for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import torch

from moonfed.errors import InvalidInput
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.weights.position_embeddings import Interpolated, interpolated
from moonfed.export.weights.pretrained import PretrainedWeights, Tensors

HEAD = ("output_layer.", "projection_head.")  # what is new for another task
DEPTH = 2  # parts of a name that a prefix may have
SHOWN, EXAMPLES = 6, 3  # names
FEWEST = 0.5  # of the network's tensors outside its head that must match


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The tensors of a source that a network starts from."""

    loaded: Mapping[str, str]  # names of the network's tensors, and the source's
    new: tuple[str, ...]  # the network's others, which keep their random values
    unused: tuple[str, ...]  # the source's others
    dropped: str  # prefix of the source's names
    added: str
    interpolated: Mapping[str, Interpolated] = field(default_factory=dict)  # by the network's names

    def describe(self, source: str) -> str:
        """Return one line that says what was loaded and what was not."""
        prefixes = [
            f'prefix "{prefix}" {verb}' for prefix, verb in ((self.dropped, "dropped"), (self.added, "added")) if prefix
        ]
        return (
            f"loaded {len(self.loaded)} of {len(self.loaded) + len(self.new)} tensors from {source}"
            + (f" ({', '.join(prefixes)})" if prefixes else "")
            + "".join(
                f"; interpolated: {name}, from {each.before}x{each.before} to {each.after}x{each.after} patches"
                for name, each in self.interpolated.items()
            )
            + "".join(
                f"; {word}: {_listed(names)}" for word, names in (("new", self.new), ("unused", self.unused)) if names
            )
        )


def load_pretrained(network: Network, weights: PretrainedWeights) -> Match:
    """Copy a source's tensors into the network in place; raise InvalidInput if they do not fit it, changing nothing."""
    wanted = exchanged_tensors(network)
    found = {_renamed(name, weights.renames): tensor for name, tensor in weights.tensors.items()}
    least = 1.0 if weights.whole else FEWEST
    match = match_names(wanted, found, keep_head=weights.keep_head, source=weights.source, least=least)
    match = replace(match, interpolated=_interpolated(match, wanted, found))
    fitting = {name: found[source] for name, source in match.loaded.items()}
    fitting |= {name: each.tensor for name, each in match.interpolated.items()}
    _require_shapes(fitting, wanted, weights.source)
    with torch.no_grad():
        for name, tensor in fitting.items():
            wanted[name].copy_(tensor)
    return match


def match_names(
    wanted: Iterable[str], found: Iterable[str], *, keep_head: bool, source: str, least: float = FEWEST
) -> Match:
    """Match names; raise InvalidInput if too few of those outside the head have a tensor in the source."""
    every, names = list(wanted), list(found)
    body = {name for name in every if keep_head or not name.startswith(HEAD)}
    dropped, added = _prefixes(body, names)
    loaded = {
        target: name for name in names if name.startswith(dropped) and (target := added + name[len(dropped) :]) in body
    }
    if len(loaded) < least * len(body) or not loaded:
        missing = sorted(body - loaded.keys())
        others = sorted(set(names) - set(loaded.values()))
        raise InvalidInput(
            f"weights is {source!r}, which has {len(loaded)} of the {len(body)} tensors of the model; it lacks "
            f"{_listed(missing, EXAMPLES)}, and has {_listed(others, EXAMPLES) or 'no others'}; choose the model that "
            "they belong to, or map names with --weights-rename",
            field="weights",
            value=source,
        )
    return Match(
        loaded=loaded,
        new=tuple(name for name in every if name not in loaded),
        unused=tuple(sorted(set(names) - set(loaded.values()))),
        dropped=dropped,
        added=added,
    )


def _prefixes(body: set[str], names: list[str]) -> tuple[str, str]:
    """Return the prefix to drop from the source's names and the one to add with which most match."""

    def score(prefixes: tuple[str, str]) -> tuple[int, int]:
        dropped, added = prefixes
        hits = sum(name.startswith(dropped) and added + name[len(dropped) :] in body for name in names)
        return hits, -len(dropped) - len(added)

    return max(product(_leading(names), _leading(body)), key=score)


def _leading(names: Iterable[str]) -> list[str]:
    """Return the prefixes of at most DEPTH parts that names have, and the empty one."""
    found = {""}
    for name in names:
        parts = name.split(".")[:-1]
        found |= {".".join(parts[:depth]) + "." for depth in range(1, min(DEPTH, len(parts)) + 1)}
    return sorted(found)


def _renamed(name: str, renames: Mapping[str, str]) -> str:
    for prefix, other in renames.items():
        if name.startswith(prefix):
            return other + name[len(prefix) :]
    return name


def _interpolated(match: Match, wanted: Tensors, found: Tensors) -> dict[str, Interpolated]:
    """Return the position embeddings that images of another size need, by the network's names."""
    others = {name: found[source] for name, source in match.loaded.items() if found[source].shape != wanted[name].shape}
    changed = {name: interpolated(name, tensor, wanted[name].shape) for name, tensor in others.items()}
    return {name: each for name, each in changed.items() if each}


def _require_shapes(fitting: Tensors, wanted: Tensors, source: str) -> None:
    wrong = [
        f"{name} is {list(tensor.shape)} and must be {list(wanted[name].shape)}"
        for name, tensor in fitting.items()
        if tensor.shape != wanted[name].shape
    ]
    if wrong:
        more = f" and {len(wrong) - EXAMPLES} more" if len(wrong) > EXAMPLES else ""
        raise InvalidInput(
            f"weights is {source!r}, whose shapes differ from the model's: {'; '.join(wrong[:EXAMPLES])}{more}",
            field="weights",
            value=source,
        )


def _listed(names: Iterable[str], shown: int = SHOWN) -> str:
    every = list(names)
    more = f" and {len(every) - shown:,} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more
