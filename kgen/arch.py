"""GPU architectures as plain values: sm_80, sm_90a, sm_100f.

A cubin for a plain architecture runs on later minors of the same major; one with the suffix `f` (family) likewise from
its own minor on; one with `a` (accelerated features) runs on that very device only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kgen.errors import ArchError

_PATTERN = re.compile(r"(?:sm_|compute_)?(\d{2,3})([af]?)")


class Arch(NamedTuple):
    """One target of the compiler, ordered by age."""

    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Arch:
        """`sm_90a`, `90a` or `compute_90a`; raises ArchError for anything else."""
        match = _PATTERN.fullmatch(text.strip().lower()) if isinstance(text, str) else None
        if match is None:
            raise ArchError(f"{text!r} is no GPU architecture", hint="write for instance sm_80, sm_90a or sm_100f")
        number, suffix = match.groups()
        return cls(int(number[:-1]), int(number[-1]), suffix)

    @classmethod
    def of_device(cls, capability: tuple[int, int]) -> Arch:
        """What to compile for on a device of this compute capability: from Hopper on, with its own features."""
        major, minor = capability
        return cls(major, minor, "a" if capability >= (9, 0) else "")

    @property
    def number(self) -> int:
        """The number in its name, 90 for sm_90a."""
        return self.major * 10 + self.minor

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a cubin of this architecture loads on a device of that compute capability."""
        if self.suffix == "a":
            return (self.major, self.minor) == tuple(capability)
        return self.major == capability[0] and self.minor <= capability[1]

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


OLDEST = Arch(7, 5)
"""The oldest architecture that today's NVRTC compiles for."""
HOPPER = Arch(9, 0)
"""The first with clusters, and with kernels that begin while the one before them ends."""
