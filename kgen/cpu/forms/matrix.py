"""Instructions on fragments that a warp holds: counts of registers, and a function that takes arrays of them."""

_MMA = "# include ops/mma.h"
_EXACT = "# include ops/mma_exact.h"
_TILES = "# include ops/matrix.h"

TABLE = f"""
movmatrix.sync.aligned.m8n8.trans.b16 | 1 | 1 | kg::transposed_tile | {_TILES}"""

for _k, _a in ((8, 2), (16, 4)):
    TABLE += f"""
mma.sync.aligned.m16n8k{_k}.row.col.f32.{{f16,bf16}}.$1.f32 | 4 | {_a} {_a // 2} 4 | \
kg::mma<kg::FloatSums, kg::packed::$1, kg::packed::$1, {_k}> | {_MMA}
mma.sync.aligned.m16n8k{_k}.row.col.f16.f16.f16.f16 | 2 | {_a} {_a // 2} 2 | \
kg::mma<kg::HalfSums, kg::packed::f16, kg::packed::f16, {_k}> | {_MMA}
mma.sync.aligned.m16n8k{_k // 2}.row.col.f32.tf32.tf32.f32 | 4 | {_a} {_a // 2} 4 | \
kg::mma<kg::FloatSums, kg::packed::tf32, kg::packed::tf32, {_k // 2}> | {_MMA}"""

for _k, _a in ((16, 2), (32, 4)):
    for _kind, _c, _sums in (("f32", 4, "FloatSums"), ("f16", 2, "HalfSums")):
        TABLE += f"""
mma.sync.aligned.m16n8k{_k}.row.col.{_kind}.{{e4m3,e5m2}}.{{e4m3,e5m2}}.{_kind} | {_c} | {_a} {_a // 2} {_c} | \
kg::mma_of_bytes<kg::{_sums}, kg::packed::$1, kg::packed::$2, {_k}> | {_MMA}"""

for _m, _k, _a, _b in ((8, 16, 1, 1), (16, 16, 2, 1), (16, 32, 4, 2)):
    TABLE += f"""
mma.sync.aligned.m{_m}n8k{_k}.row.col.{{,satfinite.}}s32.{{s8,u8}}.{{s8,u8}}.s32 | {_m // 4} | {_a} {_b} {_m // 4} | \
kg::mma_of_integers<{_m}, {_k}, kg::$2, kg::$3, (sizeof "$1" > 1)> | {_EXACT}"""

for _m, _k, _a, _b in ((8, 4, 1, 1), (16, 4, 2, 1), (16, 8, 4, 2), (16, 16, 8, 4)):
    TABLE += f"""
mma.sync.aligned.m{_m}n8k{_k}.row.col.f64.f64.f64.f64 | {_m // 4} | {_a} {_b} {_m // 4} | \
kg::mma_of_doubles<{_m}, {_k}> | {_EXACT}"""
