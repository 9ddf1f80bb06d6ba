from __future__ import annotations

import pytest

from moonfed.errors import UnsafePlan
from moonfed.inspection.source import require_safe_source

HONEST = """class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  __annotations__ = []
  __annotations__["0"] = __torch__.torch.nn.Linear
  weight : Tensor
  training : bool
  rate : Final[float] = 0.10000000000000001
  padding : Final[Tuple[int, int]] = (1, -1)
  mode : Final[str] = "it's \\"zeros\\" # so"
  def forward(self: __torch__.Net,
    inputs: Tensor,
    scale: float=1.5,
    size: Optional[List[int]]=None) -> Tensor:
    if torch.gt(scale, 1.):
      x = torch.mul(inputs, scale)
    else:
      x = torch.add(inputs, CONSTANTS.c0)
    return x
def free(x: Tensor) -> Tensor:
  return torch.relu(x)
"""


def changed(old: str, new: str) -> str:
    assert old in HONEST
    return HONEST.replace(old, new)


def test_torchscripts_own_source_is_accepted() -> None:
    require_safe_source("code/net.py", HONEST)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed("scale: float=1.5", 'scale: Tensor=torch.from_file("/etc/passwd", False, 9)'), "has a default value"),
        (changed("scale: float=1.5", "scale: float=evil()"), "has a default value"),
        (changed("= 0.10000000000000001", '= torch.save(1, "queue.py")'), "has a constant"),
        (changed("= (1, -1)", "= (1, evil(2))"), "has a constant"),
        (
            changed("  training : bool\n", '  training : bool\n  torch.save(1, "x")\n'),
            "in a class, which is not allowed",
        ),
        (changed("def free(", 'torch.save(1, "x")\ndef free('), "outside classes and functions"),
        (changed("def forward", "def __setstate__"), "has '__setstate__'"),
        (changed("def forward", "def __getstate__"), "has '__getstate__'"),
        (changed("def forward", "def __reduce__"), "has '__reduce__'"),
        (changed("def forward", "def __reduce_ex__"), "has '__reduce_ex__'"),
        (changed("def forward", "def __del__"), "has '__del__'"),
        (changed("return x\n", "return (lambda y: y)(x)\n"), "has 'lambda'"),
        (changed("  training : bool\n", " training : bool\n"), "in a class, which is not allowed"),
        (changed("weight : Tensor", "weight : __torch__.torch.classes.quantized.Conv"), "has 'torch.classes'"),
        (HONEST + "  # " + "x" * 9_000_000, "has a comment"),
        (changed("return x\n", "return x # harmless\n"), "has a comment"),
        (HONEST + '  """' + "x" * 100 + '"""\n', "has a docstring"),
        (changed("return x\n", "return 'x'\n"), "has a quote"),
        (changed("return x\n", "return x; evil()\n"), "has a semicolon"),
        (changed("return x\n", "return " + "(" * 50_000 + "x" + ")" * 50_000 + "\n"), "open brackets"),
        (changed("return x\n", "return (x\n"), "brackets that do not match"),
        (changed("return x\n", "return " + "-" * 50_000 + "x\n"), "more than 100 operators"),
        (changed("return x\n", "return " + "x + " * 50_000 + "x\n"), "more than 100 operators"),
        (changed("return x\n", "return " + "x if y else " * 5_000 + "x\n"), "more than 100 operators"),
        (changed("return x\n", "return " + "not " * 50_000 + "x\n"), "more than 100 operators"),
        (changed("return x\n", "return x" + ".y" * 50_000 + "\n"), "more than 100 operators"),
        (changed("    return x\n", "    " + " " * 200 + "return x\n"), "is indented by more than 120 columns"),
        (changed("    else:", "    elif y:"), "has 'elif'"),
        (changed("return x\n", 'return "x\n'), "has a quote that is not closed"),
    ],
)
def test_code_that_could_run_or_exhaust_the_parser_is_rejected(text: str, message: str) -> None:
    with pytest.raises(UnsafePlan, match=message):
        require_safe_source("code/net.py", text)
