"""What may be asked of a softmax, and the flags of its kernels that stand for it."""

from __future__ import annotations

from typing import NamedTuple

from kgen.dtypes import F32
from kgen.spec import Flag, Spec

FLAGS = (
    Flag("log", "the logarithm of the result"),
    Flag("lse", "the logarithm of the sum alone, one number for a row"),
    Flag("scaled", "x is multiplied by a number first"),
    Flag("causal", "a query sees no key behind its own"),
    Flag("mask", "a mask leaves elements out"),
    Flag("wide", "the result is in float32"),
)


class Wanted(NamedTuple):
    """What a caller wants, besides the arrays."""

    op: str
    scale: float
    causal: bool
    mask: bool

    def flags(self, *, wide: bool) -> dict[str, bool]:
        """The flags of a kernel that does it."""
        return {
            "log": self.op == "log_softmax",
            "lse": self.op == "logsumexp",
            "scaled": self.scale != 1,
            "causal": self.causal,
            "mask": self.mask,
            "wide": wide,
        }

    @property
    def floats(self) -> tuple[float, ...]:
        """The kernel's arguments of that type."""
        return (self.scale,) if self.scale != 1 else ()


def text(spec: Spec) -> dict[str, str | bool]:
    """For the kernels on FLAGS: the type of the result, and whether finding it takes a division that is exact."""
    sums_only = not spec.flags.isdisjoint(("lse", "log", "partial"))
    return {"result": "float" if spec["wide"] else "Element", "divides": spec.dtype is F32 and not sums_only}


def answer(spec: Spec, number: str, total: str = "sum", at: str = "") -> str:
    """The result, from an exponential or the logarithm of one; `at`: where sums are kept for several columns."""
    if spec["log"]:
        return f"{number} - log_sum{at}"
    if spec.dtype is F32:
        return f"quotient({number}, {total}{at}, inverse{at})"
    return f"{number} * inverse{at}"


def check(spec: Spec) -> str | None:
    """Why a combination of FLAGS is illegal, or None."""
    if spec["lse"] and any(spec[flag] for flag in ("log", "scaled", "causal", "mask")):
        return "the sum alone is of all that is there"
    if spec["wide"] and spec.dtype is F32:
        return "float32 is wide"
    return None
