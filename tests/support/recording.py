"""A plan that learns nothing and records its calls, and rounds of it. A sample's input is its own number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from moonfed.edge_client.training.local_training import RoundSettings, Samples, Trained, train_round
from moonfed.plan.interface import Plan
from moonfed.plan.training_spec import TrainingSpec


class RecordingPlan:
    """A plan with `references` representations and `draws` numbers per sample, and surveys `before` or `after`."""

    def __init__(self, references: int = 0, *, draws: int = 0, before: bool = False, after: bool = False) -> None:
        self.wanted, self.draws = references, draws
        self.surveys = {False: before, True: after}
        self.results = {"model": [torch.ones(1)]}
        self.measured: dict[str, float] = {}
        self.calls: list[str] = []
        self.batches: list[list[int]] = []
        self.surveyed: list[int] = []
        self.seen_references: list[torch.Tensor] = []
        self.seen_draws: list[torch.Tensor] = []
        self.draws_of_references: list[torch.Tensor] = []
        self.began: tuple[object, ...] = ()

    def begin_round(
        self,
        model: Sequence[torch.Tensor],
        previous_models: Sequence[Sequence[torch.Tensor]],
        received: Mapping[str, Sequence[torch.Tensor]],
        hyperparameters: Mapping[str, float],
        steps: int = 1,
    ) -> None:
        self.calls.append("begin")
        self.began = (model, previous_models, received, hyperparameters)

    def draws_per_sample(self) -> int:
        return self.draws

    def reference_count(self) -> int:
        return self.wanted

    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """[B, wanted, 3]: the sample's number, and what was drawn for it."""
        self.calls.append("references")
        self.draws_of_references.append(draws)
        values = inputs.to(draws.device) + draws.sum(1, keepdim=True)
        return values.reshape(-1, 1, 1).repeat(1, self.wanted, 3)

    def step(
        self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        self.calls.append("step")
        self.batches.append(inputs.flatten().int().tolist())
        self.seen_references.append(references.clone())  # a buffer, which the next batch overwrites
        self.seen_draws.append(draws.clone())
        return torch.tensor(float(len(self.batches)))

    def wants_survey(self, trained: bool) -> bool:
        return self.surveys[trained]

    def survey(self, inputs: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
        self.calls.append("survey")
        self.surveyed += inputs.flatten().int().tolist()

    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        self.calls.append("end")
        return self.results

    def metrics(self) -> dict[str, float]:
        return self.measured

    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls.append("evaluate")
        return torch.tensor([2.0 * len(labels), 1.0])

    def metric(self, sums: torch.Tensor, samples: int) -> float:
        return float(sums[1]) / samples

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        raise AssertionError("local training predicts nothing")

    def draws_by_sample(self, step: int, steps: int) -> dict[int, list[float]]:
        """Return the values given to each sample, by its number, in consecutive steps from `step`."""
        given: dict[int, list[float]] = {}
        for batch, draws in list(zip(self.batches, self.seen_draws, strict=True))[step : step + steps]:
            given |= dict(zip(batch, draws.tolist(), strict=True))
        return given


def numbered(count: int) -> Samples:
    return Samples(inputs=torch.arange(count).float().reshape(-1, 1), targets=torch.zeros(count, dtype=torch.int64))


def settings(**fields: object) -> RoundSettings:
    """Settings of a small round; `fields` are those of RoundSettings and of its TrainingSpec."""
    spec: dict[str, object] = {"epochs": 2, "batch_size": 4, "hyperparameters": {"learning_rate": 0.1}}
    spec |= {name: fields.pop(name) for name in TrainingSpec.__slots__ if name in fields}
    usual: dict[str, object] = {"seed": 1, "round": 1, "device": "cam-1"}
    return RoundSettings(training=TrainingSpec(**spec), **(usual | fields))  # type: ignore[arg-type]


def train(plan: Plan, data: Samples, chosen: RoundSettings, **options: object) -> Trained:
    return train_round(plan, data, model=[], previous_models=[], received={}, settings=chosen, **options)  # type: ignore[arg-type]
