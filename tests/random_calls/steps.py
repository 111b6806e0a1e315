"""Single time steps of linear attention, for decoding: states are updated in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgen import gated_reference as reference
from kgen.dtypes import F32, I32
from tests.random_calls.attention import OUTPUT, features, of_one_step
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_rms
from tests.random_calls.gated import NAMES, log_sigmoid


@calls(*(f"{name}_step" for name in NAMES), weight=1)
def step(call: Call, operator: str) -> None:
    """One token of each request; in a pool of states some may be another request's."""
    name, dtype = operator.removesuffix("_step"), call.dtype()
    keys, values = features(call), features(call)
    room = max(1, call.most // (keys * values))
    heads = min(call.pick(1, 3, 8), room)
    batch = max(1, min(call.pick(1, 3, 64, 100), room // heads))
    outer = (batch, heads)
    arrays = {
        letter: call.array(call.normal((*outer, width)) * np.float32(width**-0.25), dtype)
        for letter, width in (("q", keys), ("k", keys), ("v", values))
    }
    if name != "linear_attention":
        of = outer if name == "simple_gla" else (*outer, keys)
        arrays["g"] = call.array(log_sigmoid(call.normal(of)), dtype)
    if name == "rwkv6":
        arrays["u"] = call.array(call.normal((heads, keys)), dtype)
    pool = batch + call.pick(0, 5)
    states = call.in_place(call.normal((pool, heads, keys, values)), F32)
    places, options = np.arange(batch), {}
    if pool != batch or call.chance(0.3):
        places = call.rng.permutation(pool)[:batch]
        options["indices"] = call.array(places, I32)
    exact: dict[str, Any] = {letter: x.exact if letter == "u" else x.exact[:, :, None] for letter, x in arrays.items()}
    o, last = reference.gated(**exact, scale=keys**-0.5, initial=states.exact[places])
    expected = states.exact
    expected[places] = last
    result = call(operator, *arrays.values(), states, **options)
    least = keys**-0.5 * of_one_step(keys, *(exact[letter] for letter in "qkv"))
    check_rms(result, o[:, :, 0], dtype, OUTPUT[dtype], "o", least=least)
    check_rms(states.now(), expected, F32, 1e-6, "the states")
