"""Estimate of the memory that a round of local training needs, compared with the device's: computed from sizes alone.

A round that would not fit is declined before it starts; `moonfed-client profile` makes the same check. The estimate
follows from the manifest, the samples and the settings. The factors were measured: see docs/devices.md.
Legend: N samples, B a batch's samples, D width of a representation, k previous models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from moonfed.available_memory import Available
from moonfed.blobs.schema import TensorSpec, model_size
from moonfed.bundle.manifest import SGD, Manifest, Roles
from moonfed.edge_client.resources.placement import Memory, Placement
from moonfed.errors import ResourceExhausted
from moonfed.sizes import human

FLOAT = 4  # bytes
ITEM_SIZES = {"uint8": 1, "float32": FLOAT, "int64": 8}
PROGRAM_BYTES = 48_000_000  # the plan's code and the kernels' own working memory, above bare torch
MIXED_BYTES = 16_000_000  # more kernels, in mixed precision
CUDA_HOST_BYTES, CUDA_BYTES = 850_000_000, 110_000_000  # CUDA's libraries, and their working memory on the accelerator
# Relative to the backward pass's needs in float32; gradients of activations are transient. Mixed precision halves most.
# On CUDA, convolutions in float32 take more working memory.
ACTIVATIONS = 1.5
CUDA_ACTIVATIONS = 2.2
MIXED_ACTIVATIONS = 1.0
# Heap fragmentation, unless pieces are large enough to be mapped on their own: a multiple of the activations and the
# model, up to a limit in bytes.
HEAP_ACTIVATIONS, HEAP_ACTIVATIONS_AT_MOST = 2.5, 128_000_000
HEAP_MODEL, HEAP_MODEL_AT_MOST = 6, 64_000_000
OPTIMISERS = {  # their hyperparameters
    "learning_rate", "weight_decay", "gradient_clip_value", "gradient_clip_norm",
    "momentum", "beta1", "beta2", "epsilon",
}  # fmt: skip
MAPPED_BATCHES = 3  # of mapped samples: the present one, and two that are read ahead
TORCH = "torch and plan"
SAMPLES = "samples"
REFERENCES = "references"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes by purpose, in host memory and on the accelerator; on the CPU all are in host memory."""

    host: Mapping[str, int]
    accelerator: Mapping[str, int] = field(default_factory=dict)

    @property
    def host_bytes(self) -> int:
        """Total in host memory."""
        return sum(self.host.values())

    @property
    def accelerator_bytes(self) -> int:
        """Total on the accelerator."""
        return sum(self.accelerator.values())

    @property
    def total(self) -> int:
        """Sum of both."""
        return self.host_bytes + self.accelerator_bytes

    def parts(self) -> dict[str, int]:
        """Return bytes by purpose, on either device."""
        names = dict.fromkeys([*self.host, *self.accelerator])
        return {name: self.host.get(name, 0) + self.accelerator.get(name, 0) for name in names}

    def placed(self, available: Available) -> Need:
        """Return the need with data and references placed as `Memory.place` does.

        Samples that do not fit on the accelerator are in host memory already; references go there, or are not kept.
        """
        host, accelerator = dict(self.host), dict(self.accelerator)
        free = Memory(host=available.host, accelerator=available.accelerator)
        if available.accelerator is not None and free.place(accelerator.get(SAMPLES, 0)) is not Placement.ACCELERATOR:
            del accelerator[SAMPLES]
        place = free.place(self.parts().get(REFERENCES, 0), accelerator.get(SAMPLES, 0))
        if place is Placement.STEP:
            for memory in (host, accelerator):
                memory.pop(REFERENCES, None)
        elif place is Placement.HOST and available.accelerator is not None:
            host[REFERENCES] = accelerator.pop(REFERENCES, 0)
        return Need(host=host, accelerator=accelerator)


def round_bytes(
    manifest: Manifest,
    *,
    samples: int,
    batch_size: int,
    epochs: int,
    views: int = 0,
    held_out: int = 0,
    precision: str = "float32",
    accelerator: str = "cpu",
    runtime: int = 0,
    mapped: bool = False,
) -> Need:
    """Return an upper bound of a round's memory, seldom more than twice the actual use.

    `batch_size`, `epochs`, `views`: the assignment's. `held_out`: samples that only evaluate. `precision`: of
    moonfed.plan.interface.PRECISIONS; the lower two keep copies of the weights next to the float32 ones. `runtime`:
    bytes that the process holds with torch loaded, without plan and data. `mapped`: whether the samples stay in files,
    of which only some batches are in memory at a time.
    """
    shared, frozen, trained = _bytes(manifest.tensors), _bytes(manifest.frozen), _bytes(_trained(manifest))
    model = shared + _bytes(manifest.personal)
    received, kept = _roles_bytes(manifest.downlink), _roles_bytes(manifest.device_state)
    batch = min(batch_size, max(samples, 1))
    mixed = precision != "float32"
    cuda = accelerator != "cpu"
    activations = manifest.plan.activation_bytes * batch
    passes = MIXED_ACTIVATIONS if mixed else CUDA_ACTIVATIONS if cuda else ACTIVATIONS
    training = {
        "model": (model + frozen) * 3 // 2 if mixed else model + frozen,
        "gradients and moments": _gradients_and_moments(manifest) * trained,
        "method": received + kept + _anchors(manifest) * trained,
        "frozen encoders": manifest.plan.frozen_encoders * (model + model // 2),
        "activations": int(passes * activations + min(HEAP_ACTIVATIONS * activations, HEAP_ACTIVATIONS_AT_MOST)),
        "results": shared + _roles_bytes(manifest.uplink) + kept,
    }
    program = PROGRAM_BYTES + (MIXED_BYTES if mixed else 0) + (CUDA_HOST_BYTES if cuda else 0)
    everything = (samples + held_out) * sample_bytes(manifest)
    files = {
        TORCH: runtime + program + min(HEAP_MODEL * model, HEAP_MODEL_AT_MOST),
        "received": shared * (1 + manifest.previous_models) + frozen + received + kept,
        SAMPLES: _mapped_bytes(manifest, samples + held_out, batch) if mapped else everything,
        REFERENCES: _copies(manifest, epochs, views) * samples * reference_bytes(manifest),
    }
    if not cuda:
        return Need(host={**files, **training})
    there = {TORCH: CUDA_BYTES, **training, SAMPLES: everything, REFERENCES: files[REFERENCES]}
    return Need(host=files | {"results": training["results"], REFERENCES: 0}, accelerator=there)


def samples_room(need: Need, available: int | None, limit: int | None) -> int | None:
    """Return the bytes of host memory that samples may take; those that need more are mapped. None: any number.

    `need`: of a round without samples. `available`, `limit`: of host memory; None: unknown. At most half, because the
    samples are in memory twice while they are handed to the trainer.
    """
    bounds = [bound for bound in (available, limit) if bound is not None]
    return max(0, min(min(bounds) // 2, min(bounds) - need.host_bytes)) if bounds else None


def stay_on_disk(manifest: Manifest, samples: int, room: int | None) -> bool:
    """Return whether so many samples are mapped, because there is no room for them in memory."""
    return room is not None and samples * sample_bytes(manifest) > room


def _mapped_bytes(manifest: Manifest, samples: int, batch: int) -> int:
    """Return the bytes of the batches that are on their way, and of each sample's row, with its class if it has one."""
    return MAPPED_BATCHES * batch * sample_bytes(manifest) + samples * 2 * ITEM_SIZES["int64"]


def sample_bytes(manifest: Manifest) -> int:
    """Return the bytes of one raw sample with its target."""
    return sum(prod(form.shape) * ITEM_SIZES[form.dtype] for form in (manifest.input, manifest.target))


def reference_bytes(manifest: Manifest) -> int:
    """Return the bytes of one sample's references: 1 + k representations of width D, and what frozen layers return."""
    return (manifest.plan.frozen_encoders * manifest.plan.representation + manifest.plan.frozen_width) * FLOAT


def _trained(manifest: Manifest) -> tuple[TensorSpec, ...]:
    return manifest.parameters + tuple(spec for spec in manifest.personal if spec.kind == "parameter")


def _anchors(manifest: Manifest) -> int:
    """Return the copies of the parameters that a method may hold besides those received.

    SCAFFOLD keeps the round's initial parameters; FedProx does, too, and sums two gradients. A method without
    hyperparameters and roles, such as FedAvg, keeps none.
    """
    if set(manifest.training.hyperparameters) - OPTIMISERS:
        return 3
    return 1 if manifest.downlink or manifest.device_state else 0


def _gradients_and_moments(manifest: Manifest) -> int:
    """Return the copies of the parameters: gradients, clipped ones, and the optimiser's moments."""
    hyperparameters = manifest.training.hyperparameters
    moments = 1 if manifest.plan.optimiser == SGD else 2
    return 1 + moments + sum(name in hyperparameters for name in ("gradient_clip_value", "gradient_clip_norm"))


def _copies(manifest: Manifest, epochs: int, views: int) -> int:
    """Return how many copies of the data keep references: one without augmentation, else the views, or none."""
    copies = views if manifest.augmentation != "none" else 1
    return copies if copies < epochs else 0


def _bytes(specs: tuple[TensorSpec, ...]) -> int:
    return model_size(specs) * FLOAT


def _roles_bytes(roles: Roles) -> int:
    return sum(_bytes(specs) for specs in roles.values())


def require_fits(need: Need, available: Available, limit: int | None) -> None:
    """Raise ResourceExhausted, with both sizes, if a round would not fit.

    `limit`: bytes for local training on host and accelerator together; None: all available.
    """
    need = need.placed(available)
    if limit is not None and need.total > limit:
        raise _exhausted(need.total, need.parts(), f"the limit of this device is {human(limit)} (--max-memory)")
    if available.shared and available.host is not None and need.total > available.host:
        raise _exhausted(need.total, need.parts(), f"this device can provide at most {human(available.host)}")
    if available.host is not None and need.host_bytes > available.host:
        raise _exhausted(need.host_bytes, need.host, f"this device can provide at most {human(available.host)}")
    if available.accelerator is not None and need.accelerator_bytes > available.accelerator:
        there = f"this device's accelerator can provide at most {human(available.accelerator)}"
        raise _exhausted(need.accelerator_bytes, need.accelerator, there)


def _exhausted(total: int, parts: Mapping[str, int], there: str) -> ResourceExhausted:
    listed = ", ".join(f"{name} {human(part)}" for name, part in parts.items() if part)
    return ResourceExhausted(f"the round needs about {human(total)} ({listed}); {there}")
