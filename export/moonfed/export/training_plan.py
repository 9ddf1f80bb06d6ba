"""The training plan: a network, a method's objective and the optimiser, composed into one TorchScript module.

docs/plan-interface.md has the interface, `moonfed.plan.interface` the device's side of it.
Legend: B samples, D width of a representation, R references, K sums of a task.
"""

import copy
from collections.abc import Iterable
from itertools import chain

import torch

from moonfed.export.criteria.criterion import Criterion
from moonfed.export.loss_scale import LossScale
from moonfed.export.methods.method import Method
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.optimiser import Optimiser, clipped
from moonfed.export.reference_encoders import reference_encoders
from moonfed.export.script_utils import any_channels_last, copy_into
from moonfed.export.step_schedule import read_step_schedule


class TrainingPlan(torch.nn.Module):
    """The part of a round that depends on the model or the method.

    TorchScript can neither switch a module between train and eval mode nor list its parameters. So `inference` is a
    second copy of the network in eval mode that shares its tensors, and the tensors are also held in lists.
    """

    state: list[torch.Tensor]  # the network's exchanged tensors, in the manifest's order
    trained: list[torch.Tensor]  # its trainable parameters, in the same order
    counters: list[torch.Tensor]  # BatchNorm's; not exchanged, reset in every round
    hyperparameter_names: list[str]
    hyperparameters: dict[str, float]  # this round's

    def __init__(
        self,
        network: Network,
        criterion: Criterion,
        method: Method,
        optimiser: Optimiser,
        hyperparameter_names: Iterable[str],
        augmentation: torch.nn.Module,
    ) -> None:
        super().__init__()
        self.augmentation = augmentation
        self.draws = int(augmentation.draws)  # type: ignore[arg-type]
        self.network = network.train()
        self.inference = _eval_twin(network)
        self.criterion = criterion
        self.objective = method.objective()
        self.schedule = read_step_schedule(optimiser.step_schedule)
        self.optimiser = optimiser.module()
        self.loss_scale = LossScale()
        self.frozen = reference_encoders(network, method.frozen_encoders)
        self.most_previous = max(0, method.frozen_encoders - 1)
        tensors = exchanged_tensors(network)
        self.state = list(tensors.values())
        self.trained = [tensor for tensor in self.state if tensor.requires_grad]
        self.counters = [buffer for name, buffer in network.named_buffers() if name.endswith("num_batches_tracked")]
        self.hyperparameter_names = sorted(hyperparameter_names)
        self.hyperparameters = {}
        self.previous = 0  # number of previous models available this round
        self.channels_last = False  # memory format of convolution weights, and so of samples

    @torch.jit.export
    def scale_losses(self, initial: float) -> None:
        """Set the initial loss scale of every round; 0 disables loss scaling."""
        self.loss_scale.initial = initial

    @torch.jit.export
    def begin_round(
        self,
        model: list[torch.Tensor],
        previous_models: list[list[torch.Tensor]],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
        steps: int,
    ) -> None:
        """Copy the weights in, and reset the optimiser."""
        for name in self.hyperparameter_names:
            if name not in hyperparameters:
                raise ValueError("hyperparameter '" + name + "' is missing")
        self.hyperparameters = hyperparameters
        copy_into(self.state, model)
        self.channels_last = any_channels_last(self.state)
        for counter in self.counters:
            counter.zero_()
        self.previous = min(len(previous_models), self.most_previous)
        if self.reference_count() > 0:
            self.frozen.load(0, model)
            for index in range(self.previous):
                self.frozen.load(1 + index, previous_models[index])
        device = self.state[0].device
        self.schedule.begin(steps, device)  # type: ignore[operator]
        self.optimiser.begin(self.trained)  # type: ignore[operator]
        self.loss_scale.begin(device)
        self.criterion.begin()
        with torch.no_grad():
            self.objective.begin(self.trained, received, hyperparameters)

    @torch.jit.export
    def draws_per_sample(self) -> int:
        """Return the number of random numbers for augmenting one sample."""
        return self.draws

    @torch.jit.export
    def reference_count(self) -> int:
        """Return the number of frozen representations per sample that `step` needs this round."""
        return self.objective.reference_count(self.previous, self.hyperparameters)

    @torch.jit.export
    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Compute the objective's references [B, …] from the frozen encoders' representations of augmented inputs."""
        return self.frozen_references(self.prepared(inputs, draws))

    def prepared(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augment and preprocess samples, once for all encoders."""
        samples: torch.Tensor = self.network.preprocessing(self.augmentation(inputs, draws), self.channels_last)
        return samples

    def frozen_references(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute the references [B, …] of prepared samples; [B, 0] if the objective needs none."""
        count = self.reference_count()
        references = torch.zeros([samples.size(0), 0], device=samples.device)
        with torch.no_grad():
            if count > 0:
                representations_BRD = self.frozen.encode(samples, count).to(torch.float32)
                references = self.objective.references(representations_BRD, self.hyperparameters)
        return references

    @torch.jit.export
    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """Take one optimiser step; return the loss before it."""
        outputs, z_BD, wanted, references_BRD = self.outputs(inputs, targets, references, draws)
        return self.learn(outputs, z_BD, wanted, references_BRD)

    @torch.jit.export
    def outputs(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run a step's first half, possibly in lower precision: return outputs, z, targets and references."""
        samples = self.prepared(inputs, draws)
        if references.numel() == 0 and self.reference_count() > 0:
            references = self.frozen_references(samples)
        if self.objective.trains_encoder(self.previous, self.hyperparameters):
            features = self.network.features(samples)
        else:  # in eval mode
            with torch.no_grad():
                features = self.inference.features(samples)
        wanted = self.criterion.targets(samples, self.augmentation.targets(targets, draws))  # type: ignore[operator]
        return self.network.outputs(features), self.network.embed(features), wanted, references

    @torch.jit.export
    def learn(
        self,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
    ) -> torch.Tensor:
        """Run a step's second half, in float32: compute the loss and descend its gradients."""
        outputs = outputs.to(torch.float32)
        loss: torch.Tensor = self.objective(
            self.criterion(outputs, targets),
            outputs,
            z_BD.to(torch.float32),
            targets,
            references_BRD,
            self.hyperparameters,
        )
        if loss.requires_grad:
            loss = self.descend(loss)
        return loss.detach()

    def descend(self, loss: torch.Tensor) -> torch.Tensor:
        """Update the parameters; return the loss including the terms that depend only on the parameters."""
        # autograd.grad accumulates nothing, and reports parameters that the loss does not depend on as None
        gradients = torch.autograd.grad([self.loss_scale.scaled(loss)], self.trained, allow_unused=True)
        with torch.no_grad():
            loss, gradients = self.objective.regularise(  # type: ignore[assignment]
                loss,
                self.loss_scale.unscaled(gradients),  # type: ignore[arg-type]
                self.trained,
                self.hyperparameters,
            )
            skip = self.loss_scale.skip()
            limited = clipped(gradients, self.hyperparameters)  # type: ignore[arg-type]
            rate = self.schedule.rate(self.hyperparameters["learning_rate"])  # type: ignore[operator]
            self.optimiser.step(self.trained, limited, self.hyperparameters, rate, skip)  # type: ignore[operator]
            self.objective.after_step(self.trained, self.hyperparameters, skip)
            self.loss_scale.update()
        return loss

    @torch.jit.export
    def wants_survey(self, trained: bool) -> bool:
        """Return whether `survey` must see all samples now."""
        counts = self.criterion.wants_survey() and not trained
        return counts or self.objective.wants_survey(trained, self.hyperparameters)

    @torch.jit.export
    def survey(self, inputs: torch.Tensor, targets: torch.Tensor, steps: int) -> None:
        """Show the task its targets, and the objective a batch in eval mode, with gradients, which it may measure."""
        samples = self.network.preprocessing(inputs)
        wanted = self.criterion.targets(samples, targets)
        if steps == 0 and self.criterion.wants_survey():
            self.criterion.survey(wanted)
        if not self.objective.wants_survey(steps > 0, self.hyperparameters):
            return
        features = self.inference.features(samples)
        outputs = self.inference.outputs(features)
        loss = self.criterion(outputs, wanted) * inputs.size(0)
        self.objective.survey(loss, outputs, self.inference.embed(features), wanted, self.trained, steps)

    @torch.jit.export
    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """Return copies of the exchanged tensors and the method's results, by role."""
        with torch.no_grad():
            results = self.objective.results(self.trained, self.loss_scale.taken(steps), self.hyperparameters)
        results["model"] = [tensor.detach().clone() for tensor in self.state]
        return results

    @torch.jit.export
    def metrics(self) -> dict[str, float]:
        """Return the method's metrics."""
        with torch.no_grad():
            return self.objective.metrics(self.trained, self.hyperparameters)

    @torch.jit.export
    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the task's sums [K] over a batch; the first is that of the loss."""
        with torch.no_grad():
            samples = self.network.preprocessing(inputs)
            outputs = self.inference.outputs(self.inference.features(samples))
            return self.criterion.sums(outputs, self.criterion.targets(samples, targets))

    @torch.jit.export
    def metric(self, sums: torch.Tensor, samples: int) -> float:
        """Return the task's metric from its sums [K] over a number of samples."""
        return self.criterion.metric(sums, samples)

    @torch.jit.export
    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute what the ONNX graph returns, such as class probabilities [B, C]."""
        with torch.no_grad():
            samples = self.network.preprocessing(inputs)
            return self.criterion.predict(self.inference.outputs(self.inference.features(samples)), samples)


def _eval_twin(network: Network) -> Network:
    """Copy a network in eval mode, sharing its tensors."""
    shared = {id(tensor): tensor for tensor in chain(network.parameters(), network.buffers())}
    return copy.deepcopy(network, shared).eval()
