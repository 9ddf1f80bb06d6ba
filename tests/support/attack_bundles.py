"""Complete plans that attack a device when it trains, profiles or predicts; apart from the attack they are honest.

Each attack must fail in the inspection, before the plan is loaded, and in the sandbox if the inspection is off. A test
checks that attacks on files succeed without both, so that the other tests prove something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.support.attack_plans import archive_of, rewritten, with_code


class HarmlessPlan(torch.nn.Module):
    """A plan that returns the model that it received; subclasses do something else in every step, too."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.path = path
        self.model = [torch.zeros(1)]

    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a scalar, and do nothing else."""
        return inputs.sum()

    @torch.jit.export
    def load_frozen(self, tensors: list[torch.Tensor]) -> None:
        """Keep nothing: there are none."""

    @torch.jit.export
    def begin_round(
        self,
        model: list[torch.Tensor],
        previous_models: list[list[torch.Tensor]],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
        steps: int,
    ) -> None:
        """Keep the model."""
        self.model = model

    @torch.jit.export
    def draws_per_sample(self) -> int:
        """Return 0: no augmentation."""
        return 0

    @torch.jit.export
    def reference_count(self) -> int:
        """Return 0: no references."""
        return 0

    @torch.jit.export
    def references(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return an unused value."""
        return inputs

    @torch.jit.export
    def step(
        self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> torch.Tensor:
        """Attack."""
        return self.attack(inputs).float().sum() * 0.0

    @torch.jit.export
    def wants_survey(self, trained: bool) -> bool:
        """Return False."""
        return False

    @torch.jit.export
    def survey(self, inputs: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
        """Do nothing."""

    @torch.jit.export
    def end_round(self, steps: int) -> dict[str, list[torch.Tensor]]:
        """Return the model."""
        return {"model": self.model}

    @torch.jit.export
    def metrics(self) -> dict[str, float]:
        """Return no metrics."""
        return {"attacked": 1.0}

    @torch.jit.export
    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return a perfect score."""
        return torch.zeros(2)

    @torch.jit.export
    def metric(self, sums: torch.Tensor, samples: int) -> float:
        """Return a perfect score."""
        return 1.0

    @torch.jit.export
    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Attack, and prefer the first class."""
        self.attack(inputs)
        return torch.ones([inputs.size(0), 3])

    @torch.jit.export
    def scale_losses(self, scale: float) -> None:
        """Do nothing."""

    @torch.jit.export
    def outputs(
        self, inputs: torch.Tensor, targets: torch.Tensor, references: torch.Tensor, draws: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return an unused value."""
        return inputs, inputs, inputs, inputs

    @torch.jit.export
    def learn(
        self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor, references: torch.Tensor
    ) -> torch.Tensor:
        """Return an unused value."""
        return logits.sum()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return an unused value."""
        return inputs


class _ReadFile(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        found = torch.from_file(self.path, False, 64, dtype=torch.uint8)
        self.model[0].view(-1)[:64] = found.float()
        return inputs.sum()


class _WriteFile(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_file(self.path, True, 64, dtype=torch.uint8).fill_(35).sum()


class _Save(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        torch.save(inputs, self.path)
        return inputs.sum()


class _Files(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        for number in range(1 << 24):
            torch.save(inputs, str(number))
        return inputs.sum()


class _AsStrided(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(inputs, [1 << 40], [1], 0)[-1]


class _Reinterpret(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.inductor._reinterpret_tensor(inputs, [1 << 40], [1], 0)
        return found.sum()


class _DataType(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.zeros([4], dtype=int(inputs.requires_grad) - 1)  # type: ignore[call-overload]
        return found.sum()


class _Print(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        print("2026-01-01 00:00:00,000 INFO run forged, round 1: submitted")
        return inputs.sum()


class _Loop(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        total = inputs.sum()
        while bool(total < 1e30):
            total = total * 0.0
        return total


class _Allocate(HarmlessPlan):
    def attack(self, inputs: torch.Tensor) -> torch.Tensor:
        kept = [inputs]
        for _ in range(1 << 16):
            kept.append(torch.empty([64 << 20]))  # noqa: PERF401 - TorchScript
        return torch.stack([tensor.sum() for tensor in kept]).sum()


class _OnLoad(HarmlessPlan):
    """A plan that writes a file when it is loaded."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.value = torch.zeros(1)

    @torch.jit.export
    def __getstate__(self) -> tuple[str, list[torch.Tensor], torch.Tensor, bool]:
        return self.path, self.model, self.value, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, list[torch.Tensor], torch.Tensor, bool]) -> None:
        self.path, self.model, self.value = state[0], state[1], state[2]
        self.model.append(torch.from_file(self.path, True, 64, dtype=torch.uint8).fill_(35))
        self.training = state[3]


def _plan(kind: Callable[[str], HarmlessPlan]) -> Callable[[Path], bytes]:
    return lambda path: archive_of(kind(str(path)))


def _changed(change: Callable[[str], str]) -> Callable[[Path], bytes]:
    return lambda _: with_code(archive_of(HarmlessPlan()), change)


def _in_attack(line: str) -> Callable[[Path], bytes]:
    """Put a line at the beginning of the attack's code."""

    def change(code: str) -> str:
        head, definition, rest = code.partition("  def attack(")
        signature, colon, body = rest.partition(":\n")
        return f"{head}{definition}{signature}{colon}    {line}\n{body}"

    return _changed(change)


def _in_class(lines: str) -> Callable[[Path], bytes]:
    """Put lines at the end of the plan's class; `PATH` in them is the file."""
    return lambda path: with_code(
        archive_of(HarmlessPlan()),
        lambda code: code.replace("  def attack(", lines.replace("PATH", str(path)) + "  def attack(", 1),
    )


def _indented(path: Path) -> bytes:
    """Indent the plan's class by three columns, with a constant that torch computes while it loads the class."""

    def change(code: str) -> str:
        lines = [f" {line}" if line.startswith("  ") else line for line in code.split("\n")]
        constant = f'   evil : Final[Tensor] = torch.from_file("{path}", True, 64)'
        at = next(number for number, line in enumerate(lines) if "def begin_round(" in line)
        return "\n".join([*lines[:at], constant, *lines[at:]])

    return with_code(archive_of(HarmlessPlan()), change)


def _long_name(_: Path) -> bytes:
    return rewritten(archive_of(HarmlessPlan()), lambda records: records | {"archive/data/" + "1" * 5000: b"x"})


@dataclass(frozen=True)
class Attack:
    """An attack; `plan` builds it against the file at a path.

    `rejection`: a pattern of the inspection's message, or of the limits' message if only they can stop it. `sandbox`: a
    pattern of the device's message without the inspection; empty if the plan does no harm there.
    """

    plan: Callable[[Path], bytes]
    rejection: str
    sandbox: str = ""
    reads: bool = False  # the key
    writes: bool = False  # a file


COMMENTS = ("#" + " what a plan has to say" * 4 + "\n") * 40_000
BRACKETS = "_0 = " + "(" * 50_000 + "1" + ")" * 50_000
CUSTOM_CLASS = "_0 = __torch__.torch.classes.evil.Shell.run(1)"
WRITING = 'torch.from_file("PATH", True, 64)'
PLAN = "__torch__.tests.support.attack_bundles.HarmlessPlan"
DEFAULT = f"  def%sdefault(self: {PLAN},\n    x: Tensor={WRITING}) -> Tensor:\n    return x\n"
TWICE = "class HarmlessPlan:\n  x : int\n"
LITERAL = "  evil : Final[int] = " + "1-" * 28 + "x\n"
STOPPED = "did not end within|sent no heartbeat for|was killed by|can't allocate memory|bad_alloc"
BEYOND_TABLES = "was killed by SIG|the plan could not"  # whatever is in memory there
ATTACKS: dict[str, Attack] = {
    "from_file, reading": Attack(_plan(_ReadFile), "operator 'aten::from_file'", "unable to open file", reads=True),
    "from_file, writing": Attack(_plan(_WriteFile), "operator 'aten::from_file'", "unable to open file", writes=True),
    "save": Attack(_plan(_Save), "operator 'aten::save'", writes=True),
    "files": Attack(_plan(_Files), "operator 'aten::save'", STOPPED),
    "__setstate__": Attack(_plan(_OnLoad), "state__', which is not allowed", "unable to open file", writes=True),
    "long record name": Attack(_long_name, "has a broken name, or one of over 200 characters"),
    "_reinterpret_tensor": Attack(_plan(_Reinterpret), "operator 'inductor::_reinterpret_tensor'", "was killed by SIG"),
    "as_strided": Attack(_plan(_AsStrided), "operator 'aten::as_strided'", "the plan could not"),
    "data type": Attack(_plan(_DataType), "'aten::zeros' has a data type that is computed", BEYOND_TABLES),
    "print": Attack(_plan(_Print), "operator 'prim::Print'"),
    "default": Attack(_in_class(DEFAULT % " "), "printer does not write", "unable to open file", writes=True),
    "default, tab": Attack(_in_class(DEFAULT % "\t"), r"character '\\t' outside", "unable to open file", writes=True),
    "default, form feed": Attack(
        _in_class(DEFAULT % "\f"), r"character '\\x0c' outside", "unable to open file", writes=True
    ),
    "constant": Attack(_indented, "printer does not write", "unable to open file", writes=True),
    "class declared twice": Attack(_changed(lambda code: code + TWICE), "'HarmlessPlan' twice", "cannot be"),
    "slow literal": Attack(_in_class(LITERAL), "printer does not write", "cannot be"),
    "loop": Attack(_plan(_Loop), STOPPED, STOPPED),
    "allocation": Attack(_plan(_Allocate), "can't allocate memory", "can't allocate memory"),
    "comments": Attack(_changed(lambda code: COMMENTS + code), "the character '#' outside a string", STOPPED),
    "brackets": Attack(_in_attack(BRACKETS), "a line of over 100,000 characters", STOPPED),
    "custom class": Attack(_in_attack(CUSTOM_CLASS), "'__torch__.torch.classes'", "cannot be"),
    "unknown namespace": Attack(_in_attack("_0 = ops.evil.run(inputs)"), "evil::run", "evil::run"),
}
