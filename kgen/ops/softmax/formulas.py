"""What the kernels of softmax and of its gradient compute, as their specializations do it."""

from __future__ import annotations

from kgen.spec import Spec

SEEN = {"causal": "the query sees", "mask": "the mask leaves", "partial": "are in one part"}
"""Over which elements maximum and sum go, by the flags that limit them."""


def along(spec: Spec) -> str:
    """The formula of a softmax along a row."""
    return _formula(spec, "", "")


def down(spec: Spec) -> str:
    """The formula of a softmax down columns."""
    return _formula(spec, ", c", "[c]")


def backward(spec: Spec) -> str:
    """The formula of the gradient, from a result and the gradient of it."""
    scale = "scale " if spec["scaled"] else ""
    if "partial" in spec.flags:
        return f"sum over the j of a part of dy[j]{'' if spec['log'] else ' y[j]'}"
    if spec["log"]:
        return f"dx[i] = {scale}(dy[i] - exp(y[i]) sum over j of dy[j])"
    return f"dx[i] = {scale}y[i] (dy[i] - sum over j of dy[j] y[j])"


def _formula(spec: Spec, column: str, of_column: str) -> str:
    flags, top, total = spec.flags, f"m{of_column}", f"d{of_column}"
    own, other = (f"{'scale ' if 'scaled' in flags else ''}x[{at}{column}]" for at in "ij")
    lines = [f"{top} = max of {other},  {total} = sum of exp({other} - {top})"]
    seen = [words for flag, words in SEEN.items() if flag in flags]
    if seen:
        lines[0] += f",  over the j that {' and '.join(seen)}"
    if "lse" in flags:
        lines.append(f"y{of_column} = {top} + log({total})")
    elif "partial" not in flags:
        result = f"{own} - {top} - log({total})" if "log" in flags else f"exp({own} - {top}) / {total}"
        lines.append(f"y[i{column}] = {result}")
    return "\n".join(lines)
