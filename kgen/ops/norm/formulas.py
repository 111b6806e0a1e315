"""What the kernels of norms and of their gradients compute, as their specializations do it."""

from __future__ import annotations

from kgen.spec import Spec


def forward(spec: Spec) -> str:
    """The formula of a norm, or of what its first pass finds."""
    flags, lines, x = spec.flags, [], "x[i]"
    if "residual" in flags:
        lines, x = ["total[i] = x[i] + residual[i]"], "total[i]"
    if "partial" in flags:
        moments = f"mean of {x}^2" if "rms" in flags else f"mean of {x}, sum of ({x} - mean)^2"
        return "\n".join([*lines, f"{moments}, over the i of each part"])
    at = "[channel of i]" if "channels" in flags else "[group, i]" if "grouped" in flags else "[i]"
    y = f"{x} / sqrt(mean of {x}^2 + eps)" if "rms" in flags else f"({x} - mean) / sqrt(variance + eps)"
    if "weight" in flags:
        y += f" * (weight{at} + weight_offset)" if "rms" in flags else f" * weight{at}"
    if "bias" in flags:
        y += f" + bias{at}"
    return "\n".join([*lines, f"y[i] = {y}"])


def backward(spec: Spec, *, weight: bool = True, offset: bool = True, sums: bool = True) -> str:
    """The formula of the gradients of x and, with `sums`, of the parts of weight's and bias's over some rows; or of
    what a first pass finds."""
    rms = "rms" in spec.flags
    g = "g" if weight else "dy"
    lines = [f"n[i] = {'x[i]' if rms else '(x[i] - mean)'} rstd"]
    if weight:
        lines[0] += f",  g[i] = dy[i] {'(weight[i] + weight_offset)' if rms and offset else 'weight[i]'}"
    if "partial" in spec.flags:
        lines.append(f"sums of {g}[i] n[i]{'' if rms else f' and of {g}[i]'}, over the i of each part")
    else:
        lines.append(f"dx[i] = rstd ({g}[i] - {'' if rms else f'mean({g}) - '}n[i] mean({g} n))")
    if sums:
        bias = ",  dbias[i] = sum over rows of dy[i]" if "bias" in spec.flags else ""
        lines.append(f"dweight[i] = sum over rows of dy[i] n[i]{bias}")
    return "\n".join(lines)
