"""Linear attention of features, which may be divided by its normalizer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kgen import gated_reference as reference
from kgen.dtypes import F32
from tests.random_calls.attention import OUTPUT, STATE, operands, sizes
from tests.random_calls.call import Call, calls
from tests.random_calls.compare import check_rms
from tests.random_calls.draw import Array
from tests.random_calls.gated import CHUNK_STATE

FEATURES: dict[str, Callable[[Array], Array]] = {
    "elu": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    "relu": lambda x: np.maximum(x, 0),
    "exp(x / 2)": lambda x: np.exp(x / 2),
}
"""Of numbers that are not negative: normalizers of both signs may come near 0."""

EPSILON = 1e-6


@calls("linear_attention", weight=0.7)
def of_features(call: Call, operator: str) -> None:
    dtype, outer, keys, values = sizes(call)
    q, k, v = operands(call, outer, (keys, keys, values), dtype)
    feature_map, normalize, reverse = call.pick(*FEATURES), call.chance(0.5), call.chance(0.3)
    shape = (*outer[:2], keys, values)
    initial, before = np.zeros(shape), np.zeros(shape[:3])
    options = {"feature_map": feature_map, "normalize": normalize, "reverse": reverse, "return_state": True}
    if call.chance(0.4):
        options["initial_state"] = state = call.array(call.normal(shape), F32)
        initial = state.exact
        if normalize:
            options["initial_normalizer"] = normalizer = call.array(call.uniform(shape[:3]), F32)
            before = normalizer.exact
    made = call(operator, q, k, v, **options)

    given = (FEATURES[feature_map](q.exact), FEATURES[feature_map](k.exact), v.exact)
    scale = keys**-0.5
    if normalize:
        how = {"scale": scale, "epsilon": EPSILON, "initial": initial, "normalizer": before, "reverse": reverse}
        wanted: tuple[Array, ...] = reference.normalized(*given, **how)
    else:
        wanted = reference.gated(*given, scale=scale, initial=initial, reverse=reverse)
    check_rms(made[0], wanted[0], dtype, OUTPUT[dtype], "o")
    bar = STATE if normalize or dtype == F32 else CHUNK_STATE  # chunks keep no normalizer
    for result, expected, what in zip(made[1:], wanted[1:], ("the state", "the normalizer")):
        check_rms(result, expected, F32, bar, what)
