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


def check(spec: Spec) -> str | None:
    """Why a combination of FLAGS is illegal, or None."""
    if spec["lse"] and any(spec[flag] for flag in ("log", "scaled", "causal", "mask")):
        return "the sum alone is of all that is there"
    if spec["wide"] and spec.dtype is F32:
        return "float32 is wide"
    return None
