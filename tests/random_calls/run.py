"""Making calls by their numbers, and telling what came of each."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import kgen
from tests.random_calls import (
    attention,
    counting,
    elements,
    expressions,
    gated,
    moving,
    normalized,
    norms,
    softmax,
    steps,
    sums,
)
from tests.random_calls.call import FAMILIES, Call, Family
from tests.random_calls.views import Device, Gpu, Host

MODULES = (softmax, norms, sums, elements, expressions, moving, counting, attention, gated, steps, normalized)
"""Importing them declares the families of operators."""

MOST_ON_GPU = 3_000_000
"""Numbers of the largest array: enough for several waves of blocks, and few for the references."""

MOST_ON_CPU = 20_000
"""That the executor computes in a fraction of the second that a kernel takes to compile."""

ENOUGH = 12
"""Failures after which a process stops: more would be of the same cause."""


@dataclass(frozen=True)
class Settings:
    """Which calls are made, and where.

    most  the numbers of the largest array; None: what suits the device
    """

    seed: int
    operator: str = "*"
    cpu: bool = False
    most: int | None = None

    def device(self) -> Device:
        """The arrays' place."""
        return Host(self.most or MOST_ON_CPU) if self.cpu else Gpu(self.most or MOST_ON_GPU)

    def alone(self, number: int) -> str:
        """The command that makes one call again."""
        more = (" --cpu" if self.cpu else "") + (f" --most {self.most}" if self.most else "")
        return f"python -m tests.random_calls --seed {self.seed} --call {number}{more}"


class Begun(NamedTuple):
    """A call is being made: should its process die, this was the one."""

    number: int
    operator: str


class Done(NamedTuple):
    """A call was made; `failure` says how it went wrong, if it did."""

    number: int
    operator: str
    told: str = ""
    failure: str = ""


Send = Callable[[Begun | Done], None]


def operators() -> list[str]:
    """All that are called."""
    return [operator for family in FAMILIES for operator in family.operators]


def work(settings: Settings, numbers: Iterable[int], deadline: float, send: Send) -> None:
    """Make the calls of these numbers until the deadline (of `time.monotonic`), too many failures, or a device's."""
    device = settings.device()
    failures = 0
    with kgen.backend("cpu") if settings.cpu else nullcontext():
        for number in numbers:
            if time.monotonic() > deadline or failures == ENOUGH:
                return
            done = make(settings, number, device, send)
            if done is None or not done.failure:
                continue
            failures += 1
            if _of_the_device(done.failure):
                return


class Drawn(NamedTuple):
    """What a number stands for, as far as it is drawn."""

    call: Call
    family: Family
    operator: str


def drawn(settings: Settings, number: int, device: Device) -> Drawn:
    """All that follows is drawn from the call's own generator, so that it depends on seed and number alone."""
    call = Call(np.random.default_rng([settings.seed, number]), device)
    weights = np.array([family.weight for family in FAMILIES])
    family = FAMILIES[int(call.rng.choice(len(FAMILIES), p=weights / weights.sum()))]
    return Drawn(call, family, call.pick(*family.operators))


def make(settings: Settings, number: int, device: Device, send: Send) -> Done | None:
    """The call of this number; None where its operator is not asked for."""
    call, family, operator = drawn(settings, number, device)
    if not fnmatch.fnmatch(operator, settings.operator):
        return None
    send(Begun(number, operator))
    failure = ""
    try:
        family.make(call, operator)
    except Exception as error:  # whatever it is, the other calls go on
        failure = f"{type(error).__name__}: {error}"
    done = Done(number, operator, call.told, failure)
    send(done)
    return done


def _of_the_device(failure: str) -> bool:
    """Whether it leaves the GPU of no use to this process, as an illegal access does."""
    return re.search("cuda_?error|CUDA error", failure) is not None
