"""Calls of operators that plans may use, and that neither moonfed's own plans nor torch's layers contain."""

from __future__ import annotations

import math
from typing import Optional, Union

import torch
import torch.nn.functional as F  # noqa: N812

from moonfed.export.methods.method import Objective


def arithmetic(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    square = x.matmul(x.t())
    return [
        torch.addcdiv(x, x, y + 4.0),
        torch.addcmul(x, x, y),
        torch.addmm(square, x, x.t()),
        torch.atan2(x, y),
        x.ceil(),
        x.cumsum(1),
        torch.full_like(x, 0.5),
        x.clamp_max(0.5),
        torch.einsum("bc,dc->bd", [x, y]),
        x.erf(),
        x.expm1(),
        x.detach().floor_divide(2.0),
        x.fmod(2.0),
        torch.lerp(x, y, 0.5),
        y.abs().add(1.0).log(),
        y.abs().log1p(),
        y.abs().add(1.0).log2(),
        torch.minimum(x, y),
        torch.mm(x, y.t()),
        torch.mv(x, y[0]),
        torch.outer(x[0], y[0]),
        y.abs().add(1.0).rsqrt(),
        torch.rsub(x, 1.0),
        torch.remainder(x, 2.0),
        torch.bmm(x.unsqueeze(0), y.t().unsqueeze(0)),
        F.scaled_dot_product_attention(x.unsqueeze(0), y.unsqueeze(0), x.unsqueeze(0)),
        x.tan(),
        x.trunc(),
        torch.cdist(x, y + 5.0),
    ]


def logic(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    positive, negative = x > 0, y < 0
    return [
        positive | negative,
        torch.bitwise_and(positive, negative),
        torch.bitwise_or(positive, negative),
        torch.logical_and(positive, negative),
        torch.logical_or(positive, negative),
        torch.logical_not(positive),
        positive.all(),
        positive.any(),
        x.isfinite(),
        x.isinf(),
        x.isnan(),
    ]


def reductions(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        x.amax(1),
        x.amin(1),
        x.argmin(1),
        torch.ops.aten.frobenius_norm(x, [1]),
        torch.linalg.norm(x),
        x.max(),
        x.max(1)[0],
        x.median(),
        x.min(),
        x.prod(),
        x.std(1),
        torch.std_mean(x, 1)[0],
        x.topk(2)[0],
        x.var(1),
        torch.var_mean(x, 1)[1],
    ]


def shapes(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    labels = x.argmax(1)
    first, second = torch.meshgrid(x[0], y[0], indexing="ij")
    left, right = x.split_with_sizes([1, 2], 1)
    return [
        x.diagonal(),
        x.gather(1, labels.unsqueeze(1)),
        torch.linspace(0.0, 1.0, 5),
        x.masked_select(x > 0),
        first,
        second,
        x.movedim(0, 1),
        x.new_empty([2]).zero_(),
        x.new_full([2], 1.0),
        x.new_ones([2]),
        x.new_zeros([2]),
        F.one_hot(labels, 3),
        x.repeat_interleave(2, 0),
        x.sort()[0],
        torch.sort(x, stable=True, dim=0)[0],
        left,
        right,
        x.tensor_split(3, 1)[0],
        x.tile([2]),
        x.tril(),
        x.triu(),
        torch.ones([2]),
        x.chunk(2)[0],
        x.split(2)[0],  # type: ignore[no-untyped-call]
        labels.type_as(x),
        x.unbind(1)[0],
        x.t().contiguous().view_as(x.t()),
        x.reshape_as(x.t()),
        torch.scatter(x, 1, labels.unsqueeze(1), 1.0),
        torch.scatter_add(x, 1, labels.unsqueeze(1), x[:, :1]),
        torch.index_add(x, 0, labels, y[: labels.size(0)]),
        F.grid_sample(x.view(1, 1, x.size(0), x.size(1)), torch.zeros([1, 2, 2, 2], dtype=x.dtype, device=x.device)),
        F.pad(x, [1, 1]),
        torch.constant_pad_nd(x, [1, 1]),
        torch.ops.aten.reflection_pad1d(x, [1, 1]),
        torch.ops.aten.replication_pad1d(x, [1, 1]),
        torch.ops.aten.reflection_pad2d(x.unsqueeze(0), [1, 1, 1, 1]),
        torch.ops.aten.replication_pad2d(x.unsqueeze(0), [1, 1, 1, 1]),
        torch.ops.aten.nll_loss(torch.log_softmax(x, 1), labels),
        torch.ops.aten.relu6(x),
    ]


def in_place(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    changed, index = x.clone(), x.argmax(1, keepdim=True)
    changed.abs_()
    changed.clamp_(0.0, 1.0)
    changed.sub_(y)
    changed.masked_fill_(changed > 2.0, 2.0)
    changed.scatter_(1, index, 1.0)
    changed.scatter_add_(1, index, x[:, :1])
    changed[0] = 1.0
    changed[changed > 1.0] = 0.5
    filled = torch.zeros_like(x)
    filled.fill_(2.0)
    filled.bernoulli_(0.5)
    filled.sigmoid_()
    filled.requires_grad_()
    changed.index_put_([index[:, 0]], y)
    return [changed, filled, torch.index_put(x, [index[:, 0]], y), torch.index_put(x, [None, index[:, 0]], y[:, :1])]


def values(x: torch.Tensor, wanted: Optional[torch.Tensor]) -> list[torch.Tensor]:  # noqa: UP045 - of the script
    numbers, words, flags = [2, 0, 1], ["b", "a"], [True, False]
    numbers.sort()
    words.sort()
    flags.sort()
    numbers.extend([3])
    last = numbers.pop()
    others = numbers.copy()
    others.clear()
    scales = {"one": 1.0, "two": 2.0}
    total = scales.get("one", 0.0)
    for key in scales.keys():  # noqa: SIM118 - a script has no other loop over keys
        total += scales[key]
    for value in scales.values():
        total += value
    for key, value in scales.items():
        total += value if key in words and flags[0] else 0.0
    share = float(x.sum().item()) / max(last, len(words), len(others))
    sizes = (x.size(0), x.size(1), last)[1:]
    found = torch.tensor([total, share, math.sqrt(sizes[0])], device=x.device)
    if bool((x > 0).any()) and x.is_floating_point():
        found = found + 1.0
    if wanted is not None and x.is_cuda == wanted.is_cuda and x.layout == wanted.layout:
        found = found + wanted.data.sum()
    return [found, torch.scalar_tensor(share, dtype=x.dtype), torch.tensor(last / 3) * x.shape[0]]


def conversions(x: torch.Tensor) -> list[torch.Tensor]:
    """Pass tensors as numbers, as only scripts can."""
    zero = (x * 0.0).detach().sum()
    place = torch.device("cpu" if x.dim() == 2 else "meta")
    return [
        torch.full([2], zero).to(place),  # type: ignore[call-overload]
        torch.dropout(x, zero, True),  # type: ignore[arg-type]
    ]


def doubled(number: Union[int, list[int]]) -> int:  # noqa: UP007 - of the script
    if isinstance(number, int):
        return 2 * number
    return 2 * number[0]


def halves(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.size(0) * 2, -1)


class Calling(Objective):
    """An objective that calls all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.traced = torch.jit.trace(halves, torch.ones(2, 4))  # type: ignore[no-untyped-call]

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        other = outputs.flip(0)
        found = arithmetic(outputs, other) + logic(outputs, other) + reductions(outputs)
        found += shapes(outputs, other) + in_place(outputs, other) + values(outputs, other)
        found += conversions(outputs)
        found.append(self.traced(outputs.repeat(1, 2)) * doubled(3) * doubled([3]))
        total = outputs.sum() * 0.0
        for each in found:
            total = total + torch.where(each.to(torch.float32).isfinite(), each.to(torch.float32), 0.0).sum() * 1e-6
        return total
