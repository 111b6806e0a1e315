"""f32 and f64 arithmetic rounded toward zero, down and up; and products with .ftz, which flushes before it rounds."""

_INCLUDE = "# include ops/exact.h"
_OPERATIONS = {"add": "x + y", "sub": "x - y", "mul": "x * y", "fma": "kg::fused(x, y, z)", "div": "x / y"}
_OPERATIONS |= {"rcp": "1 / x", "sqrt": "kg::root(x)"}


def _lines() -> str:
    lines = []
    for name, formula in _OPERATIONS.items():
        count = 3 if "z" in formula else 2 if "y" in formula else 1
        f32, f64 = " ".join(["f32"] * count), " ".join(["f64"] * count)
        function = f"[&]({', '.join(f'auto {x}' for x in 'xyz'[:count])}) {{ return {formula}; }}"
        operands = f"{function}, {', '.join('abc'[:count])}"
        directed = "{rz,rm,rp}"
        plain = f"kg::directed<kg::$1>({operands})" if name != "fma" else "kg::directed_fma<kg::$1>(a, b, c)"
        lines += [
            f"{name}.{directed}.f32 | f32 | {f32} | {plain}",
            f"{name}.{directed}.f64 | f64 | {f64} | kg::directed<kg::$1>({operands})",
            f"{name}.{directed}.ftz.f32 | f32 | {f32} | kg::directed_ftz<kg::$1>({operands})",
        ]
        if name in ("add", "sub", "mul", "fma"):
            lines += [
                f"{name}.{directed}.sat.f32 | f32 | {f32} | kg::saturated({plain})",
                f"{name}.{directed}.ftz.sat.f32 | f32 | {f32} | kg::saturated(kg::directed_ftz<kg::$1>({operands}))",
            ]
        if name in ("mul", "fma"):
            start = f"{name}{{,.rn}}" if name == "mul" else f"{name}.rn"
            lines += [
                f"{start}.ftz.f32 | f32 | {f32} | kg::nearest_ftz({operands})",
                f"{start}.ftz.sat.f32 | f32 | {f32} | kg::saturated(kg::nearest_ftz({operands}))",
            ]
    return "\n".join(lines)


TABLE = "\n".join(f"{line} | {_INCLUDE}" for line in _lines().splitlines())
