"""What may be asked of a softmax, and the flags of its kernels that stand for it."""

from __future__ import annotations

from typing import NamedTuple

from kgen.dtypes import F32
from kgen.spec import Flag, Spec

FLAGS = (
    Flag("log", "the logarithm of the result"),
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
    """For the kernels on FLAGS: the type of the result, and whether finding it divides or subtracts, rounding once."""
    exact = spec.dtype is F32 and spec.flags.isdisjoint(("lse", "partial"))
    return {
        "result": "float" if "wide" in spec.flags else "Element",
        "divides": exact and not spec["log"],
        "subtracts": exact and bool(spec["log"]),
    }


def scaled(spec: Spec, number: str) -> str:
    """A number times the scale, if there is one.

    In float32 the product is rounded by itself: fused with a difference from the greatest, which has been rounded, it
    would be another number there than where the difference's own error is found.
    """
    if not spec["scaled"]:
        return number
    return f"__fmul_rn(scale, {number})" if spec.dtype is F32 else f"scale * {number}"


def below(spec: Spec, number: str, top: str) -> str:
    """The exponential of a number less the greatest, or what `answer` takes for the logarithm."""
    if spec["log"]:
        return number if spec.dtype is F32 else f"{number} - {top}"
    return f"exponential_below({number}, {top})" if spec.dtype is F32 else f"exponential({number} - {top})"


def answer(spec: Spec, number: str, at: str = "") -> str:
    """The result, from what `below` says; `at`: where sums are kept for several columns."""
    if spec["log"]:
        return f"difference({number}, less{at})" if spec.dtype is F32 else f"{number} - log_sum{at}"
    return f"times({number}, inverse{at})" if spec.dtype is F32 else f"{number} * inverse{at}"


def check(spec: Spec) -> str | None:
    """Why a combination of FLAGS is illegal, or None."""
    if spec["wide"] and spec.dtype is F32:
        return "float32 is wide"
    return None
