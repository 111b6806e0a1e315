"""Linear attention with gates: whole sequences, several sequences in one row, gradients, and single steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kgen import gated_reference as reference
from kgen.dtypes import F32, I32, I64, DType
from tests.random_calls.attention import GRADIENT_SLACK, OUTPUT, STATE, features, of_one_step
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_rms
from tests.random_calls.draw import Array, Shape
from tests.random_calls.views import View

CHUNK_STATE = 5e-3
"""Bar of states that chunks made: their keys, scaled by decays, are rounded to 16 bits."""

SLOPE = {True: 9e-3, False: 3e-5}
"""Bar of the gradients of gates, of 16 bits or not: differences of sums, which cancel where gates hardly decay."""

MOST_STEPS = 12
"""What the reference keeps, a state in float64 for each time step, in numbers for each of the largest array."""

NAMES = ("linear_attention", "simple_gla", "gla", "rwkv6")


class Problem(NamedTuple):
    """The arrays of a call in the order in which it takes them, and the options."""

    arrays: dict[str, View]
    options: dict[str, Any]
    dtype: DType
    heads: int
    bounds: list[tuple[int, int]]
    by_time: bool

    def exact(self, x: View) -> Array:
        """[B, H, T, ...] in float64, shared heads repeated."""
        turned = self.turned(x.exact)
        return turned.repeat(self.heads // turned.shape[1], 1)

    def turned(self, x: Array) -> Array:
        """From [B, H, T, ...] to the layout of the call, or back."""
        return x.swapaxes(1, 2) if self.by_time else x

    def sequences(self) -> list[dict[str, Any]]:
        """What the reference takes for each: those of a row with `cu_seqlens`, or all of the batch at once."""
        whole = {name: x.exact if name == "u" else self.exact(x) for name, x in self.arrays.items()}
        initial = self.options["initial_state"]
        common = {"scale": self.scale, "reverse": self.options["reverse"]}
        found = []
        for n, (start, end) in enumerate(self.bounds):
            cut = {name: x if name == "u" else x[:, :, start:end] for name, x in whole.items()}
            own = {} if initial is None else {"initial": initial.exact[n : n + 1] if self.packed else initial.exact}
            found.append(cut | common | own)
        return found

    def of_one_step(self, letters: str, *more: Array) -> float:
        """What o, or with `do` a gradient, would be of one time step."""
        over = "v" if more and "v" in letters else "q"
        return self.scale * of_one_step(
            self.arrays[over].values.shape[-1], *(self.arrays[x].exact for x in letters), *more
        )

    @property
    def packed(self) -> bool:
        return "cu_seqlens" in self.options

    @property
    def scale(self) -> float:
        given = self.options["scale"]
        return float(self.arrays["q"].values.shape[-1] ** -0.5 if given is None else given)


@calls(*NAMES, weight=4)
def forward(call: Call, operator: str) -> None:
    about = _problem(call, operator, gradients=False)
    every = 64 if not about.packed and call.chance(0.15) else None
    o, state, *cached = call(operator, *about.arrays.values(), return_state=True, states_every=every, **about.options)
    parts = [reference.gated(**x) for x in about.sequences()]
    expected = np.concatenate([part[0] for part in parts], 2)
    check_rms(about.turned(o), expected, about.dtype, OUTPUT[about.dtype], "o", least=about.of_one_step("qkv"))
    states = np.concatenate([part[1] for part in parts])
    bar = STATE if _exactly(about) else CHUNK_STATE
    check_rms(state, states, F32, bar, "the state")
    if every:
        (whole,) = about.sequences()
        initial, reverse = whole.get("initial"), whole["reverse"]
        expected = reference.states(
            whole["k"], whole["v"], whole.get("g"), every=every, initial=initial, reverse=reverse
        )
        check_rms(cached[0], expected, F32, bar, "the states")


@calls(*(f"{name}_backward" for name in NAMES), weight=3)
def backward(call: Call, operator: str) -> None:
    about = _problem(call, operator.removesuffix("_backward"), gradients=True)
    v, initial = about.arrays["v"], about.options["initial_state"]
    do = call.array(call.normal(v.values.shape), about.dtype)
    states = (len(about.bounds) if about.packed else v.values.shape[0], about.heads)
    sizes = (about.arrays["q"].values.shape[-1], v.values.shape[-1])
    dstate = call.array(call.normal((*states, *sizes)) * 0.3, F32) if call.chance(0.4) else None
    made = call(operator, do, *about.arrays.values(), dstate=dstate, **about.options)

    upstream, parts = about.turned(do.exact), []
    for n, ((start, end), x) in enumerate(zip(about.bounds, about.sequences())):
        of_state = None if dstate is None else dstate.exact[n : n + 1] if about.packed else dstate.exact
        parts.append(reference.gated_backward(upstream[:, :, start:end], **x, dstate=of_state))
    names = [*about.arrays, *(["initial"] if initial is not None else [])]
    for name, result in zip(names, made, strict=True):
        own = [part[name] for part in parts]
        expected = np.sum(own, 0) if name == "u" else np.concatenate(own, 0 if name == "initial" else 2)
        turned = result if name in ("u", "initial") else about.turned(result)
        dtype = F32 if name == "initial" else about.arrays[name].dtype
        least = about.of_one_step("qkv".replace(name, ""), do.exact) if name in "qkv" else 0
        check_rms(turned, expected, dtype, _bar_of_gradient(name, about), f"d{name}", least=least)


def log_sigmoid(x: Array) -> Array:
    result: Array = -np.logaddexp(0, -x)
    return result


def gates(call: Call, shape: Shape) -> Array:
    """From such that never decay to such that forget all."""
    soft = log_sigmoid(call.normal(shape))
    kind = call.pick("soft", "soft", "none", "hardly", "strong", "sometimes -1000", "sometimes -inf")
    if kind in ("soft", "none", "hardly", "strong"):
        return soft * {"soft": 1, "none": 0, "hardly": 1 / 64, "strong": 30}[kind]
    return np.where(call.uniform(shape) < 0.05, -np.inf if kind == "sometimes -inf" else -1000, soft)


def _problem(call: Call, name: str, *, gradients: bool) -> Problem:
    dtype = call.dtype()
    batch, heads, time, keys, values = _sizes(call)
    bounds = [(0, time)]
    options: dict[str, Any] = {}
    if call.chance(0.3):
        batch = 1
        cuts = sorted(call.between(0, time) for _ in range(call.between(0, 3)))
        offsets = [0, *cuts, time]
        bounds = list(pairwise(offsets))
        options["cu_seqlens"] = call.array(np.array(offsets), call.pick(I32, I64), plainly=1)
    own = heads if gradients else call.pick(*(h for h in range(1, heads + 1) if heads % h == 0), heads, heads)
    by_time = call.chance(0.3)
    about = Problem({}, options, dtype, heads, bounds, by_time)
    for letter, count, width in (("q", heads, keys), ("k", own, keys), ("v", own, values)):
        x = call.normal((batch, count, time, width)) * np.float32(width**-0.25)
        about.arrays[letter] = call.array(about.turned(x), dtype)
    if name != "linear_attention":
        of = (batch, heads, time) if name == "simple_gla" else (batch, heads, time, keys)
        about.arrays["g"] = call.array(about.turned(gates(call, of)), dtype if call.chance(0.7) else F32)
    if name == "rwkv6":
        about.arrays["u"] = call.array(call.normal((heads, keys)) * 0.3, dtype)
    sequences = len(bounds) if "cu_seqlens" in options else batch
    initial = call.array(call.normal((sequences, heads, keys, values)), F32) if call.chance(0.5) else None
    chunks = dtype != F32 and max(keys, values) <= 256
    modes = ("auto", "auto", "chunk", "recurrent") if chunks else ("auto", "auto", "recurrent")
    options |= {
        "scale": call.pick(None, 1.0, 0.2),
        "initial_state": initial,
        "reverse": call.chance(0.3),
        "mode": call.pick(*modes),
        "layout": "bthd" if by_time else "bhtd",
    }
    return about


def _sizes(call: Call) -> tuple[int, int, int, int, int]:
    """B, H, T, K and V, such that the reference can keep a state for each time step."""
    keys, values = features(call), features(call)
    values = keys if call.chance(0.5) else values
    time = call.pick(1, 2, 31, 32, 33, 63, 64, 65, 100, call.between(1, 200), call.between(100, 420))
    room = MOST_STEPS * call.most
    while time * keys * values > room:
        keys, values, time = max(1, keys // 2), max(1, values // 2), max(1, time - time // 4)
    room //= time * keys * values
    heads = min(call.pick(1, 2, 3, 8), room)
    return max(1, min(call.pick(1, 1, 2, 3), room // heads)), heads, time, keys, values


def _exactly(about: Problem) -> bool:
    """Whether states are computed in float32 throughout."""
    return about.dtype == F32 or about.options["mode"] == "recurrent"


def _bar_of_gradient(name: str, about: Problem) -> float:
    if name == "g":
        return SLOPE[about.dtype != F32]
    if name == "initial":
        return 5e-6 if about.dtype == F32 else 6e-3
    return GRADIENT_SLACK * OUTPUT[about.dtype]
