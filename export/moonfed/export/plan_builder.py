"""The training plan: a network, a method's objective and the optimiser, composed and compiled to TorchScript.

docs/plan-interface.md has the interface, `moonfed.plan` the device's side of it.
Legend: B samples, C classes, D width of a representation, R references.
"""

import copy
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.errors import InvalidInput
from moonfed.export.archive import clean_archive
from moonfed.export.frozen_encoder import frozen_encoder
from moonfed.export.loss_scale import LossScale
from moonfed.export.methods import Method
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.optimiser import SgdOptimiser
from moonfed.export.script_utils import copy_into, lie_channels_last, pick
from moonfed.files import write_durably
from moonfed.plan import quiet_torchscript


class TrainingPlan(torch.nn.Module):
    """Everything of a round that depends on the model or on the method.

    TorchScript can neither switch a module between train and eval mode nor list its parameters. So `inference` is the
    network once more, in eval mode, with the same tensors; and lists of the tensors are kept beside the modules.
    """

    state: list[torch.Tensor]  # the network's exchanged tensors, in the manifest's order
    trained: list[torch.Tensor]  # its trained parameters, in the same order
    counters: list[torch.Tensor]  # BatchNorm's, not exchanged: every round counts from zero
    frozen_states: list[list[torch.Tensor]]  # of each frozen encoder, a subset of the exchanged tensors
    frozen_places: list[int]  # where that subset stands in the manifest's order
    hyperparameter_names: list[str]
    hyperparameters: dict[str, float]  # this round's

    def __init__(
        self, network: Network, method: Method, hyperparameter_names: Iterable[str], augmentation: torch.nn.Module
    ) -> None:
        super().__init__()
        self.augmentation = augmentation
        self.draws = int(augmentation.draws)  # type: ignore[arg-type]
        self.network = network.train()
        self.inference = _eval_twin(network)
        self.objective = method.objective()
        self.optimiser = SgdOptimiser()
        self.loss_scale = LossScale()
        self.frozen = torch.nn.ModuleList([frozen_encoder(network) for _ in range(method.frozen_encoders)])
        tensors = exchanged_tensors(network)
        names = list(tensors)
        frozen_tensors = [exchanged_tensors(encoder) for encoder in self.frozen]
        self.state = list(tensors.values())
        self.trained = [tensor for tensor in self.state if tensor.requires_grad]
        self.counters = [buffer for name, buffer in network.named_buffers() if name.endswith("num_batches_tracked")]
        self.frozen_states = [list(part.values()) for part in frozen_tensors]
        self.frozen_places = [names.index(name) for name in frozen_tensors[0]] if frozen_tensors else []
        self.hyperparameter_names = sorted(hyperparameter_names)
        self.hyperparameters = {}
        self.previous = 0  # previous models at hand this round
        self.channels_last = False  # whether the weights of convolutions lie so in memory, and samples are to

    @torch.jit.export
    def scale_losses(self, initial: float) -> None:
        """What losses are scaled by for their gradients when a round begins; 0: never."""
        self.loss_scale.initial = initial

    @torch.jit.export
    def begin_round(
        self,
        model: list[torch.Tensor],
        previous_models: list[list[torch.Tensor]],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
    ) -> None:
        """Copies the weights in; momentum starts at zero."""
        for name in self.hyperparameter_names:
            if name not in hyperparameters:
                raise ValueError("hyperparameter '" + name + "' is missing")
        self.hyperparameters = hyperparameters
        copy_into(self.state, model)
        self.channels_last = lie_channels_last(self.state)
        for counter in self.counters:
            counter.zero_()
        self.previous = max(0, min(len(previous_models), len(self.frozen_states) - 1))
        if self.reference_count() > 0:
            copy_into(self.frozen_states[0], pick(model, self.frozen_places))
            for index in range(self.previous):
                copy_into(self.frozen_states[1 + index], pick(previous_models[index], self.frozen_places))
        self.optimiser.begin(self.trained)
        self.loss_scale.begin(self.state[0].device)
        with torch.no_grad():
            self.objective.begin(self.trained, received, hyperparameters)

    @torch.jit.export
    def draws_per_sample(self) -> int:
        """Random numbers that augmenting one sample takes."""
        return self.draws

    @torch.jit.export
    def reference_count(self) -> int:
        """References per sample that `step` wants this round."""
        return self.objective.reference_count(self.previous, self.hyperparameters)

    @torch.jit.export
    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """What the objective wants of the frozen encoders' representations of augmented inputs, [B, …]."""
        return self.frozen_references(self.prepared(inputs, draws))

    def prepared(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augmented and preprocessed samples, once for all encoders."""
        samples: torch.Tensor = self.network.preprocessing(self.augmentation(inputs, draws), self.channels_last)
        return samples

    def frozen_references(self, samples: torch.Tensor) -> torch.Tensor:
        """What the objective wants of the frozen encoders' representations of prepared samples; [B, 0] if nothing."""
        count = self.reference_count()
        references = torch.zeros([samples.size(0), 0], device=samples.device)
        with torch.no_grad():
            found: list[torch.Tensor] = []
            for index, encoder in enumerate(self.frozen):
                if index < count:
                    found.append(encoder.encode(samples))  # type: ignore[operator]
            if count > 0:
                representations_BRD = torch.stack(found, dim=1).to(torch.float32)  # noqa: N806
                references = self.objective.references(representations_BRD, self.hyperparameters)
        return references

    @torch.jit.export
    def step(
        self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """One step of the optimiser; the loss before it."""
        logits_BC, z_BD, references_BRD = self.outputs(inputs, references, draws)  # noqa: N806
        return self.learn(logits_BC, z_BD, labels, references_BRD)

    @torch.jit.export
    def outputs(
        self, inputs: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A step's first half, which may run in lower precision: logits, z, and references of the samples."""
        samples = self.prepared(inputs, draws)
        if references.numel() == 0 and self.reference_count() > 0:
            references = self.frozen_references(samples)
        z_BD = self.encode(samples)  # noqa: N806
        return self.network.classify(z_BD), z_BD, references

    @torch.jit.export
    def learn(
        self,
        logits_BC: torch.Tensor,  # noqa: N803
        z_BD: torch.Tensor,  # noqa: N803
        labels: torch.Tensor,
        references_BRD: torch.Tensor,  # noqa: N803
    ) -> torch.Tensor:
        """Its second half, in float32: the loss, and down its gradients."""
        loss: torch.Tensor = self.objective(
            logits_BC.to(torch.float32), z_BD.to(torch.float32), labels, references_BRD, self.hyperparameters
        )
        if loss.requires_grad:
            loss = self.descend(loss)
        return loss.detach()

    def encode(self, samples: torch.Tensor) -> torch.Tensor:
        """z [B, D] of the model in training, or, where the round does not train encoder and head, of inference."""
        if self.objective.trains_encoder(self.previous, self.hyperparameters):
            z_BD = self.network.encode(samples)  # noqa: N806
        else:
            with torch.no_grad():
                z_BD = self.inference.encode(samples)  # noqa: N806
        return z_BD

    def descend(self, loss: torch.Tensor) -> torch.Tensor:
        """Moves the parameters down the loss's gradients; the loss with what depends on the parameters alone."""
        # autograd.grad accumulates nothing, and knows which parameters the loss does not depend on
        gradients = torch.autograd.grad([self.loss_scale.scaled(loss)], self.trained, allow_unused=True)
        with torch.no_grad():
            loss, gradients = self.objective.regularise(  # type: ignore[assignment]
                loss,
                self.loss_scale.unscaled(gradients),  # type: ignore[arg-type]
                self.trained,
                self.hyperparameters,
            )
            skip = self.loss_scale.skip()
            self.optimiser.step(self.trained, gradients, self.hyperparameters, skip)  # type: ignore[arg-type]
            self.objective.after_step(self.trained, self.hyperparameters, skip)
            self.loss_scale.update()
        return loss

    @torch.jit.export
    def wants_survey(self, trained: bool) -> bool:
        """Whether `survey` is to see all samples now."""
        return self.objective.wants_survey(trained, self.hyperparameters)

    @torch.jit.export
    def survey(self, inputs: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
        """Shows the objective a batch in eval mode; with gradients, because a method may measure them."""
        z_BD = self.inference.represent(inputs)  # noqa: N806
        logits_BC = self.inference.classify(z_BD)  # noqa: N806
        self.objective.survey(logits_BC, z_BD, labels, self.trained, steps)

    @torch.jit.export
    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """Copies of the exchanged tensors, and what the method sends and keeps."""
        with torch.no_grad():
            results = self.objective.results(self.trained, self.loss_scale.taken(steps), self.hyperparameters)
        results["model"] = [tensor.detach().clone() for tensor in self.state]
        return results

    @torch.jit.export
    def metrics(self) -> dict[str, float]:
        """What the method measured."""
        with torch.no_grad():
            return self.objective.metrics(self.trained, self.hyperparameters)

    @torch.jit.export
    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """[2]: summed cross-entropy, number of correct predictions."""
        with torch.no_grad():
            logits_BC = self.inference(inputs)  # noqa: N806
            loss = F.cross_entropy(logits_BC, labels, reduction="sum")
            correct = (logits_BC.argmax(1) == labels).sum().to(loss.dtype)
            return torch.stack([loss, correct])

    @torch.jit.export
    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Class probabilities [B, C]."""
        with torch.no_grad():
            return torch.softmax(self.inference(inputs), dim=1)


class NoAugmentation(torch.nn.Module):
    """Leaves raw samples as they are; what other augmentations have instead: draws and forward."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 0  # random numbers per sample

    def forward(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """The raw samples [B, …] unchanged; `draws` [B, 0]."""
        return inputs


def compile_plan(
    network: Network,
    method: Method,
    hyperparameter_names: Iterable[str],
    *,
    augmentation: torch.nn.Module | None = None,
    model: str,
) -> torch.jit.ScriptModule:
    """The plan as TorchScript, without weights; the network is not changed.

    `augmentation`: raw samples to raw samples, as `NoAugmentation` is. `model`: its name for the message. Raises
    InvalidInput if TorchScript cannot compile the network.
    """
    plan = TrainingPlan(copy.deepcopy(network), method, hyperparameter_names, augmentation or NoAugmentation())
    _drop_weights(plan)
    try:
        with quiet_torchscript():
            scripted: torch.jit.ScriptModule = torch.jit.script(plan)
    except (torch.jit.frontend.FrontendError, RuntimeError, TypeError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InvalidInput(f"model is {model!r}, which TorchScript cannot compile: {reason}") from error
    return scripted


def plan_bytes(scripted: torch.jit.ScriptModule) -> bytes:
    """plan.pt: the archive without any trace of the machine that built it."""
    with quiet_torchscript():
        return clean_archive(scripted.save_to_buffer())


def save_plan(path: Path, scripted: torch.jit.ScriptModule) -> None:
    """Writes plan.pt."""
    write_durably(path, plan_bytes(scripted))


def _eval_twin(network: Network) -> Network:
    shared = {id(tensor): tensor for tensor in chain(network.parameters(), network.buffers())}
    return copy.deepcopy(network, shared).eval()


def _drop_weights(plan: TrainingPlan) -> None:
    """Every exchanged tensor becomes one expanded zero; constants such as integer buffers keep their values."""
    for module in (plan.network, *plan.frozen):
        for tensor in exchanged_tensors(module).values():
            tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
