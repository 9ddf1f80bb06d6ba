"""The training plan: a network, a method's objective and the optimiser, composed into one TorchScript module.

docs/plan-interface.md has the interface, `moonfed.plan.interface` the device's side of it.
Legend: B samples, D width of a representation, R references, K sums of a task.
"""

import copy
from collections.abc import Iterable
from itertools import chain
from typing import Final, Optional, TypeVar

import torch

from moonfed.export.criteria.criterion import Criterion
from moonfed.export.frozen_prefix import split_prefix
from moonfed.export.loss_scale import LossScale
from moonfed.export.methods.method import Method
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.optimiser import PERSONAL_SHARE, Optimiser, clipped
from moonfed.export.personal_turn import PersonalTurn
from moonfed.export.reference_encoders import reference_encoders
from moonfed.export.script_utils import any_channels_last, copy_into, product, shaped, sides_of
from moonfed.export.step_schedule import read_step_schedule
from moonfed.export.tensor_parts import TensorParts, freeze_modules

M = TypeVar("M", bound=torch.nn.Module)


class TrainingPlan(torch.nn.Module):
    """The part of a round that depends on the model or the method.

    TorchScript can neither switch a module between train and eval mode nor list its parameters. So `inference` is a
    second copy of the network in eval mode that shares its tensors, and the tensors are also held in lists.
    Frozen first layers are split off as `prefix`, which a sample passes only once, whatever the number of encoders.
    """

    has_prefix: Final[bool]
    has_personal: Final[bool]
    has_own: Final[bool]
    has_turns: Final[bool]
    state: list[torch.Tensor]  # the network's shared tensors, in the manifest's order
    frozen: list[torch.Tensor]  # likewise
    personal: list[torch.Tensor]  # likewise
    whole: list[torch.Tensor]  # all tensors after the prefix
    shared_places: list[int]  # of `state` among them
    shared_trained: list[torch.Tensor]  # the parameters in `state`
    sides: list[int]  # of a sample's values after the prefix
    reference_sides: list[int]  # of its references
    trained: list[torch.Tensor]  # those and the parameters in `personal`
    anchor: list[torch.Tensor]  # of a personal model: the global one's parameters
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
        parts: TensorParts | None = None,
    ) -> None:
        """`parts`: of the network's tensors; by default, all are shared."""
        super().__init__()
        tensors = exchanged_tensors(network)
        parts = parts or TensorParts(tuple(tensors))
        self.state = [tensors[name] for name in parts.shared]
        self.frozen = [tensors[name] for name in parts.frozen]
        freeze_modules(network.train(), parts.frozen)
        prefix, network = split_prefix(network, () if criterion.compares_samples else parts.frozen)
        self.has_prefix = prefix is not None
        self.prefix = _eval_twin(prefix) if prefix is not None else torch.nn.Identity()
        self.augmentation = augmentation
        self.draws = int(augmentation.draws)  # type: ignore[arg-type]
        self.network = network
        self.inference = _eval_twin(network)
        self.has_own = method.trains_personal_model
        self.own = _own_model(network, parts) if self.has_own else torch.nn.Identity()
        self.own_inference = _eval_twin(self.own)
        self.personal = _personal(self.own if self.has_own else network, parts, whole=self.has_own)
        self.has_personal = bool(self.personal)
        self.anchor = []
        self.criterion = criterion
        self.objective = method.objective()
        self.schedule = read_step_schedule(optimiser.step_schedule)
        self.optimiser = optimiser.module()
        self.turns = PersonalTurn()
        self.own_optimiser = optimiser.module()
        self.loss_scale = LossScale()
        self.encoders = reference_encoders(network, method.frozen_encoders, parts.frozen)
        self.most_previous = max(0, method.frozen_encoders - 1)
        names = list(exchanged_tensors(network))
        self.whole = [tensors[name] for name in names]
        self.shared_places = [names.index(name) for name in parts.shared]
        self.shared_trained = [tensor for tensor in self.state if tensor.requires_grad]
        self.trained = self.shared_trained + [tensor for tensor in self.personal if tensor.requires_grad]
        buffers = chain(network.named_buffers(), self.own.named_buffers())
        self.counters = [buffer for name, buffer in buffers if name.endswith("num_batches_tracked")]
        self.loaded = not parts.frozen  # whether the frozen tensors have their values
        self.sides = []
        self.reference_sides = []
        self.hyperparameter_names = sorted(hyperparameter_names)
        self.has_turns = PERSONAL_SHARE in self.hyperparameter_names
        self.hyperparameters = {}
        self.previous = 0  # number of previous models available this round
        self.channels_last = False  # memory format of convolution weights, and so of samples

    @torch.jit.export
    def scale_losses(self, initial: float) -> None:
        """Set the initial loss scale of every round; 0 disables loss scaling."""
        self.loss_scale.initial = initial

    @torch.jit.export
    def load_frozen(self, tensors: list[torch.Tensor]) -> None:
        """Copy the frozen tensors in, once for all rounds."""
        copy_into(self.frozen, tensors)
        self.loaded = True

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
        if not self.loaded:
            raise ValueError("the frozen tensors are missing")
        self.hyperparameters = hyperparameters
        copy_into(self.state, model)
        if self.has_personal:
            if "personal" not in received:
                raise ValueError("the personal tensors are missing")
            copy_into(self.personal, received["personal"])
        self.channels_last = any_channels_last(self.whole)
        for counter in self.counters:
            counter.zero_()
        self.previous = min(len(previous_models), self.most_previous)
        if self.compared() > 0:
            self.encoders.load(0, self.whole)
            for index in range(self.previous):
                self.encoders.load(1 + index, self.with_shared(previous_models[index]))
        device = self.trained[0].device
        self.schedule.begin(steps, device)  # type: ignore[operator]
        if self.has_turns:
            self.optimiser.begin(self.shared_trained)  # type: ignore[operator]
            self.own_optimiser.begin(self.trained[len(self.shared_trained) :])  # type: ignore[operator]
            self.turns.begin(hyperparameters["personal_share"], steps, device)
        else:
            self.optimiser.begin(self.trained)  # type: ignore[operator]
        self.loss_scale.begin(device)
        self.criterion.begin()
        if self.has_own:
            self.anchor = [parameter.detach().clone() for parameter in self.shared_trained]
        with torch.no_grad():
            self.objective.begin(self.shared_trained, received, hyperparameters)

    def with_shared(self, model: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return all tensors after the prefix, with the shared ones of another model."""
        if len(model) != len(self.shared_places):
            raise ValueError("a previous model has " + str(len(model)) + " tensors")
        found = self.whole[:]
        for index, place in enumerate(self.shared_places):
            found[place] = model[index]
        return found

    def compared(self) -> int:
        """Return the number of frozen representations per sample that the objective needs this round."""
        return self.objective.reference_count(self.previous, self.hyperparameters)

    @torch.jit.export
    def draws_per_sample(self) -> int:
        """Return the number of random numbers for augmenting one sample."""
        return self.draws

    @torch.jit.export
    def reference_count(self) -> int:
        """Return how many frozen results per sample are worth keeping for `step`: representations, or the prefix's."""
        return max(1, self.compared()) if self.has_prefix else self.compared()

    @torch.jit.export
    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Compute the objective's references [B, …] from the frozen encoders' representations of augmented inputs.

        With a prefix, they come after its outputs, in [B, F].
        """
        samples = self.prepared(inputs, draws)
        references = self.frozen_references(samples)
        if self.has_prefix:
            self.sides, self.reference_sides = sides_of(samples), sides_of(references)
            flat = samples.flatten(1)
            return torch.cat([flat, references.flatten(1)], 1) if references.numel() > 0 else flat
        return references

    def kept(self, found: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the prefix's outputs [B, …] and the objective's references [B, …] of `references`."""
        width = product(self.sides)
        samples = shaped(found[:, :width], self.sides)
        if self.channels_last and samples.dim() == 4:
            samples = samples.contiguous(memory_format=torch.channels_last)
        return samples, shaped(found[:, width:], self.reference_sides)

    def prepared(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augment and preprocess samples, once for all encoders."""
        return self.preprocessed(self.augmentation(inputs, draws))

    def preprocessed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Preprocess samples, and pass them through the prefix."""
        samples: torch.Tensor = self.network.preprocessing(inputs, self.channels_last)
        if self.has_prefix:
            with torch.no_grad():
                samples = self.prefix(samples)
        return samples

    def frozen_references(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute the references [B, …] of prepared samples; [B, 0] if the objective needs none."""
        count = self.compared()
        references = torch.zeros([samples.size(0), 0], device=samples.device)
        with torch.no_grad():
            if count > 0:
                representations_BRD = self.encoders.encode(samples, count).to(torch.float32)
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
        if self.has_prefix and references.numel() > 0:
            samples, references = self.kept(references)
        else:
            samples = self.prepared(inputs, draws)
            if references.numel() == 0 and self.compared() > 0:
                references = self.frozen_references(samples)
        if self.objective.trains_encoder(self.previous, self.hyperparameters):
            features = self.network.features(samples)
        else:  # in eval mode
            with torch.no_grad():
                features = self.inference.features(samples)
        wanted = self.criterion.targets(samples, self.augmentation.targets(targets, draws))  # type: ignore[operator]
        outputs, z_BD = self.network.outputs(features), self.network.embed(features)
        if self.has_own:
            outputs = torch.cat([outputs, self.own.outputs(self.own.features(samples))])  # type: ignore[operator]
        return outputs, z_BD, wanted, references

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
        own_loss: Optional[torch.Tensor] = None  # noqa: UP045 - of the script
        if self.has_own:
            size = outputs.size(0) // 2
            own_loss = self.criterion(outputs[size:], targets)
            outputs = outputs[:size]
        loss: torch.Tensor = self.objective(
            self.criterion(outputs, targets),
            outputs,
            z_BD.to(torch.float32),
            targets,
            references_BRD,
            self.hyperparameters,
        )
        if loss.requires_grad:
            loss = self.descend(loss, own_loss)
        return loss.detach()

    def descend(
        self,
        loss: torch.Tensor,
        own_loss: Optional[torch.Tensor],  # noqa: UP045
    ) -> torch.Tensor:
        """Update the parameters; return the loss including the terms that depend only on the parameters.

        `own_loss`: of a personal model; the two models share no tensor that is trained.
        """
        # autograd.grad accumulates nothing, and reports parameters that the loss does not depend on as None
        total = loss if own_loss is None else loss + own_loss
        gradients = torch.autograd.grad([self.loss_scale.scaled(total)], self.trained, allow_unused=True)
        with torch.no_grad():
            unscaled = self.loss_scale.unscaled(gradients)  # type: ignore[arg-type]
            count = len(self.shared_trained)
            shared = unscaled[:count] if self.has_personal else unscaled
            loss, shared = self.objective.regularise(loss, shared, self.shared_trained, self.hyperparameters)
            whole = shared + unscaled[count:] if self.has_personal else shared
            skip = self.loss_scale.skip()
            limited = clipped(whole, self.hyperparameters)
            if self.has_own:  # two models, each within its limits
                towards = drawn(unscaled[count:], self.trained[count:], self.anchor, self.hyperparameters["mu"])
                limited = clipped(shared, self.hyperparameters) + clipped(towards, self.hyperparameters)
            rate = self.schedule.rate(self.hyperparameters["learning_rate"])  # type: ignore[operator]
            if self.has_turns:
                own_skip, skip = self.turns.skips(skip)
                own, own_gradients = self.trained[count:], limited[count:]
                self.own_optimiser.step(own, own_gradients, self.hyperparameters, rate, own_skip)  # type: ignore[operator]
                self.optimiser.step(self.shared_trained, limited[:count], self.hyperparameters, rate, skip)  # type: ignore[operator]
            else:
                self.optimiser.step(self.trained, limited, self.hyperparameters, rate, skip)  # type: ignore[operator]
            self.objective.after_step(self.shared_trained, self.hyperparameters, skip)
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
        samples = self.preprocessed(inputs)
        wanted = self.criterion.targets(samples, targets)
        if steps == 0 and self.criterion.wants_survey():
            self.criterion.survey(wanted)
        if not self.objective.wants_survey(steps > 0, self.hyperparameters):
            return
        features = self.inference.features(samples)
        outputs = self.inference.outputs(features)
        loss = self.criterion(outputs, wanted) * inputs.size(0)
        self.objective.survey(loss, outputs, self.inference.embed(features), wanted, self.shared_trained, steps)

    @torch.jit.export
    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """Return copies of the exchanged tensors and the method's results, by role."""
        with torch.no_grad():
            taken = self.loss_scale.taken(steps, self.trained[0].device)
            results = self.objective.results(self.shared_trained, taken, self.hyperparameters)
        results["model"] = [tensor.detach().clone() for tensor in self.state]
        if self.has_personal:
            results["personal"] = [tensor.detach().clone() for tensor in self.personal]
        return results

    @torch.jit.export
    def metrics(self) -> dict[str, float]:
        """Return the method's metrics."""
        found: dict[str, float] = {}
        for name, value in self.measured().items():
            if bool(torch.isfinite(value)):
                found[name] = float(value)
        return found

    def measured(self) -> dict[str, torch.Tensor]:
        """Return the method's metrics as scalars."""
        with torch.no_grad():
            return self.objective.metrics(self.shared_trained, self.hyperparameters)

    @torch.jit.export
    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the task's sums [K] over a batch; the first is that of the loss."""
        with torch.no_grad():
            samples = self.preprocessed(inputs)
            outputs = self.predicted(samples)
            return self.criterion.sums(outputs, self.criterion.targets(samples, targets))

    @torch.jit.export
    def metric(self, sums: torch.Tensor, samples: int) -> float:
        """Return the task's metric from its sums [K] over a number of samples."""
        return float(self.criterion.metric(sums, samples))

    @torch.jit.export
    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute what the ONNX graph returns, such as class probabilities [B, C]."""
        with torch.no_grad():
            samples = self.preprocessed(inputs)
            return self.criterion.predict(self.predicted(samples), samples)

    def predicted(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute the outputs of preprocessed samples by the model that the device predicts with."""
        if self.has_own:
            own: torch.Tensor = self.own_inference.outputs(self.own_inference.features(samples))  # type: ignore[operator]
            return own
        return self.inference.outputs(self.inference.features(samples))


def drawn(
    gradients: list[torch.Tensor | None], parameters: list[torch.Tensor], anchor: list[torch.Tensor], mu: float
) -> list[torch.Tensor | None]:
    """Return the gradients with mu · (v − w), that of mu/2 · ‖v − w‖²; None where there is none."""
    found: list[torch.Tensor | None] = []
    for index, gradient in enumerate(gradients):
        if gradient is None:
            found.append(None)
        else:
            found.append(gradient + mu * (parameters[index] - anchor[index]))
    return found


def _own_model(network: Network, parts: TensorParts) -> Network:
    """Copy a network with tensors of its own, except for the frozen ones."""
    tensors = exchanged_tensors(network)
    return copy.deepcopy(network, {id(tensors[name]): tensors[name] for name in parts.frozen if name in tensors})


def _personal(network: torch.nn.Module, parts: TensorParts, *, whole: bool) -> list[torch.Tensor]:
    """Return a network's personal tensors, or of a `whole` personal model all that the other one shares."""
    tensors = exchanged_tensors(network)
    return [tensors[name] for name in (parts.shared if whole else parts.personal)]


def _eval_twin(module: M) -> M:
    """Copy a module in eval mode, sharing its tensors."""
    shared = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    return copy.deepcopy(module, shared).eval()
