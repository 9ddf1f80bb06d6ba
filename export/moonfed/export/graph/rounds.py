"""The graphs of a plan's rounds: every method, in every way that a round can begin.

What differs between rounds without being a tensor or a symbol makes a variant: the memory format, scaled losses, the
number of previous models, the received roles, and the sides of the branches that hyperparameters take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import torch

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import PERSONAL, Roles
from moonfed.export.graph.tracer import Number, Traced, Tracer, Untraceable, plain
from moonfed.export.training_plan import TrainingPlan
from moonfed.plan.interface import CHANNELS_LAST, CONTIGUOUS, LOSS_SCALE

STEPS = 1009  # of the traced round
MOST_BRANCHES = 16  # that hyperparameters may choose between
MOST_STARTS = 64
# Methods that depend on the weights alone, and those that scaled losses do not change; none of them assigns anything.
UNCHANGING = ("evaluate", "predict", "metric")
UNSCALED = frozenset({"metrics"})
Condition = tuple[str, str, float]
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments that a device gives a plan.

    `model`: the shared tensors. `roles`: what a round may receive; all but `personal` may be absent. `sample`,
    `target`: shapes without the batch, and types. `hyperparameters`: their values
    in the first round.
    """

    model: Sequence[TensorSpec]
    roles: Roles
    hyperparameters: Mapping[str, float]
    sample: tuple[Sequence[int], torch.dtype]
    target: tuple[Sequence[int], torch.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The beginning of a round, apart from its hyperparameters."""

    memory_format: str
    previous: int
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round, and its graphs by the plan's method."""

    start: Start
    scaled: bool
    where: tuple[Condition, ...]
    reference_count: int
    graphs: Mapping[str, Traced] = field(repr=False)


def starts_of(plan: TrainingPlan, arguments: Arguments) -> list[Start]:
    """Return all ways that a round can begin; the last one has all previous models and roles."""
    images = any(len(spec.shape) == 4 for spec in arguments.model)
    formats = (CONTIGUOUS, CHANNELS_LAST) if images else (CONTIGUOUS,)
    needed = {role for role in arguments.roles if role == PERSONAL}
    optional = sorted(set(arguments.roles) - needed)
    received = [
        tuple(sorted({*chosen, *needed}))
        for count in range(len(optional) + 1)
        for chosen in combinations(optional, count)
    ]
    ways = product(formats, range(plan.most_previous + 1), received)
    starts = [Start(memory_format=layout, previous=previous, roles=roles) for layout, previous, roles in ways]
    if len(starts) > MOST_STARTS:
        raise Untraceable(f"its rounds can begin in {len(starts)} ways, of which a graph plan may have {MOST_STARTS}")
    return starts


def trace_rounds(plan: TrainingPlan, arguments: Arguments, starts: Sequence[Start], batch: int) -> list[Round]:
    """Trace the rounds that begin in some ways, with batches of a size; Untraceable if one of them cannot be."""
    unchanging: dict[str, dict[str, Traced]] = {}  # graphs that depend on the weights alone, by memory format
    return [
        each
        for start in starts
        for each in _branches(plan, arguments, start, batch, unchanging.setdefault(start.memory_format, {}))
    ]


def _branches(
    plan: TrainingPlan, arguments: Arguments, start: Start, batch: int, unchanging: dict[str, Traced]
) -> Iterator[Round]:
    """Yield the rounds that begin in one way, by the branches that hyperparameters take."""
    pending, done = [dict(arguments.hyperparameters)], list[tuple[Condition, ...]]()
    while pending:
        hints = pending.pop()
        if any(all(_HOLDS[sign](hints[name], value) for name, sign, value in each) for each in done):
            continue
        if len(done) == MOST_BRANCHES:
            raise Untraceable(f"it computes with the value of hyperparameter {done[-1][-1][0]!r} itself")
        graphs: dict[str, Traced] = {}
        where: dict[Condition, None] = {}
        rounds = []
        for scaled in (False, True):
            tracer = Tracer(plan, start.memory_format, hints, batch)
            traced = _RoundTracer(tracer, arguments, start, scaled=scaled)
            graphs = {**graphs, **unchanging, **traced.graphs({*unchanging, *(UNSCALED & set(graphs))})}
            where.update(dict.fromkeys(tracer.conditions()))
            rounds.append((graphs, traced.reference_count))
        unchanging.update((method, graphs[method]) for method in UNCHANGING)
        done.append(tuple(where))
        for scaled, (found, references) in zip((False, True), rounds, strict=True):
            yield Round(start=start, scaled=scaled, where=done[-1], reference_count=references, graphs=found)
        for name, sign, value in where:
            others = (each for each in (value, value + 1.0, value - 1.0) if not _HOLDS[sign](each, value))
            pending.append({**hints, name: next(others)})


class _RoundTracer:
    """A round of a fake plan, from its beginning to its end."""

    def __init__(self, tracer: Tracer, arguments: Arguments, start: Start, *, scaled: bool) -> None:
        self.reference_count = 0
        self._tracer, self._plan, self._arguments, self._start = tracer, tracer.plan, arguments, start
        self._plan.loss_scale.initial = LOSS_SCALE if scaled else 0.0
        self._plan.loaded = True
        self._inputs, self._targets = (self._batch(*each) for each in (arguments.sample, arguments.target))
        self._draws = tracer.tensor(tracer.batch, self._plan.draws_per_sample())

    def graphs(self, known: Collection[str]) -> dict[str, Traced]:
        """Trace the methods in the order of a device's calls, except those that are known and leave no state."""
        steps, found = self._tracer.number("steps", STEPS), dict[str, Traced]()
        traces: Mapping[str, Callable[[], dict[str, Traced]]] = {
            "begin": lambda: self._begin(steps),
            "survey_first": lambda: self._survey(trained=False),
            "step": self._step,
            "survey_last": lambda: self._survey(trained=True),
            "end": lambda: {"end": self._tracer.trace(self._plan.end_round, steps=steps)},
            "metrics": self._metrics,
            "evaluate": self._evaluate,
            "predict": self._predict,
        }
        for method, trace in traces.items():
            if method not in known:
                found.update(trace())
            if method == "begin":
                before = plain(self._plan)
                self.reference_count = self._plan.reference_count()
        changed = [path for path, value in plain(self._plan).items() if before.get(path) != value]
        if unexpected := [path for path in changed if not path.partition(".")[0].endswith("sides")]:
            raise Untraceable(f"its attribute {unexpected[0]!r} is no tensor and changes within a round")
        return found

    def _begin(self, steps: Number) -> dict[str, Traced]:
        tracer, specs = self._tracer, self._arguments.model
        traced = tracer.trace(
            _nothing(lambda **given: self._plan.begin_round(**given, hyperparameters=tracer.hyperparameters)),
            model=self._tensors(specs),
            previous_models=[self._tensors(specs) for _ in range(self._start.previous)],
            received={role: self._tensors(self._arguments.roles[role]) for role in self._start.roles},
            steps=steps,
        )
        return {"begin": traced}

    def _survey(self, *, trained: bool) -> dict[str, Traced]:
        if not self._plan.wants_survey(trained):
            return {}
        survey = _nothing(lambda **batch: self._plan.survey(**batch, steps=int(trained)))
        traced = self._tracer.trace(survey, inputs=self._inputs, targets=self._targets)
        return {"survey_last" if trained else "survey_first": traced}

    def _step(self) -> dict[str, Traced]:
        batch = {"inputs": self._inputs, "targets": self._targets, "draws": self._draws}
        none = self._tracer.tensor(0)
        found = {"step": self._tracer.trace(lambda **given: self._stepped(**given, references=none), **batch)}
        if self.reference_count:
            references = lambda **given: {"references": [self._plan.references(**given)]}  # noqa: E731
            traced = self._tracer.trace(references, inputs=self._inputs, draws=self._draws)
            kept = self._tracer.tensor(self._tracer.batch, *_shape(traced)[1:])
            found |= {"references": traced, "step_kept": self._tracer.trace(self._stepped, **batch, references=kept)}
        return found

    def _stepped(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> dict[str, list[torch.Tensor]]:
        outputs, *others = self._plan.outputs(inputs, targets, references, draws)
        return {"loss": [self._plan.learn(torch.ops.moonfed_tracing.mark(outputs), *others)]}

    def _metrics(self) -> dict[str, Traced]:
        return {"metrics": self._tracer.trace(lambda: {name: [value] for name, value in self._plan.measured().items()})}

    def _evaluate(self) -> dict[str, Traced]:
        evaluate = lambda **batch: {"sums": [self._plan.evaluate(**batch)]}  # noqa: E731
        evaluated = self._tracer.trace(evaluate, inputs=self._inputs, targets=self._targets)
        sums, samples = self._tracer.tensor(*_shape(evaluated)), self._tracer.number("samples", STEPS)
        metric = lambda **given: {"metric": [self._plan.criterion.metric(**given)]}  # noqa: E731
        return {"evaluate": evaluated, "metric": self._tracer.trace(metric, sums=sums, samples=samples)}

    def _predict(self) -> dict[str, Traced]:
        predict = lambda inputs: {"outputs": [self._plan.predict(inputs)]}  # noqa: E731
        return {"predict": self._tracer.trace(predict, inputs=self._inputs)}

    def _tensors(self, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
        return [self._tracer.tensor(*spec.shape) for spec in specs]

    def _batch(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._tracer.tensor(self._tracer.batch, *shape, dtype=dtype)


def _shape(traced: Traced) -> torch.Size:
    ((result,),) = traced.outputs.values()
    shape: torch.Size = result.meta["val"].shape
    return shape


def _nothing(call: Callable[..., None]) -> Callable[..., dict[str, list[Any]]]:
    def called(**given: Number) -> dict[str, list[Any]]:
        call(**given)
        return {}

    return called
