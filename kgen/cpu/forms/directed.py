"""f32 and f64 arithmetic rounded toward zero, down and up; and products with .ftz, which flushes before it rounds."""

_INCLUDE = "# include ops/exact.h"
_OPERATIONS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "rcp": 1, "sqrt": 1}


def _lines() -> str:
    lines = []
    for name, count in _OPERATIONS.items():
        operands = ", ".join("abc"[:count])
        f32, f64 = " ".join(["f32"] * count), " ".join(["f64"] * count)
        directed, saturated = "{rz,rm,rp}", f"kg::saturated(kg::exact_{name}"
        lines += [
            f"{name}.{directed}.f32 | f32 | {f32} | kg::exact_{name}<kg::$1>({operands})",
            f"{name}.{directed}.f64 | f64 | {f64} | kg::exact_{name}<kg::$1>({operands})",
            f"{name}.{directed}.ftz.f32 | f32 | {f32} | kg::exact_{name}<kg::$1, true>({operands})",
        ]
        if name in ("add", "sub", "mul", "fma"):
            lines += [
                f"{name}.{directed}.sat.f32 | f32 | {f32} | {saturated}<kg::$1>({operands}))",
                f"{name}.{directed}.ftz.sat.f32 | f32 | {f32} | {saturated}<kg::$1, true>({operands}))",
            ]
        if name in ("mul", "fma"):
            start = f"{name}{{,.rn}}" if name == "mul" else f"{name}.rn"
            lines += [
                f"{start}.ftz.f32 | f32 | {f32} | kg::{name}_ftz_f32({operands})",
                f"{start}.ftz.sat.f32 | f32 | {f32} | kg::saturated(kg::{name}_ftz_f32({operands}))",
            ]
    return "\n".join(lines)


TABLE = "\n".join(f"{line} | {_INCLUDE}" for line in _lines().splitlines())
