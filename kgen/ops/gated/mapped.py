"""A caller's own feature map: part of the text of the kernels that read queries and keys."""

from __future__ import annotations

from typing import NamedTuple

from kgen.ops.gated import features
from kgen.spec import Axis


class Mapped(NamedTuple):
    """A caller's feature map, and its derivative, which the scans of gradients along features need."""

    feature_map: str
    feature_slope: str | None = None

    @property
    def digest(self) -> str:
        return features.digest(*self)

    @property
    def formula(self) -> str:
        lines = [f"f(x) = {self.feature_map}", f"f'(x) = {self.feature_slope}" if self.feature_slope else ""]
        return "".join(f"\n{line}" for line in lines if line)


FEATURE_AXIS = Axis("FEATURE", "f", (0, 1, 2), "features of queries and keys: as they are, elu + 1, relu", default=0)
MAPPED_AXIS = Axis(
    "FEATURE", "f", (features.EXPRESSION,), "features of queries and keys: f", default=features.EXPRESSION
)


def mapped(feature_map: str | None, feature_slope: str | None) -> Mapped | None:
    """The feature map of a caller, where it is one."""
    if feature_map is None or features.number(feature_map) < features.EXPRESSION:
        return None
    return Mapped(feature_map, feature_slope)
