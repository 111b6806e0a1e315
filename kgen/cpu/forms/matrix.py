"""Instructions on fragments that a warp holds; result and operands count registers."""

_MMA = "# include ops/mma.h"
_EXACT = "# include ops/mma_exact.h"
_TILES = "# include ops/matrix.h"

TABLE = f"""
mma.sync.aligned.m16n8k8.row.col.f32.{{f16.f16,bf16.bf16}}.f32   | 4 | 2 1 4 | {_MMA}
mma.sync.aligned.m16n8k16.row.col.f32.{{f16.f16,bf16.bf16}}.f32  | 4 | 4 2 4 | {_MMA}
mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16               | 2 | 2 1 2 | {_MMA}
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16              | 2 | 4 2 2 | {_MMA}
mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32             | 4 | 2 1 4 | {_MMA}
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32             | 4 | 4 2 4 | {_MMA}
mma.sync.aligned.m16n8k16.row.col.f32.{{e4m3,e5m2}}.{{e4m3,e5m2}}.f32  | 4 | 2 1 4 | {_MMA}
mma.sync.aligned.m16n8k32.row.col.f32.{{e4m3,e5m2}}.{{e4m3,e5m2}}.f32  | 4 | 4 2 4 | {_MMA}
mma.sync.aligned.m16n8k16.row.col.f16.{{e4m3,e5m2}}.{{e4m3,e5m2}}.f16  | 2 | 2 1 2 | {_MMA}
mma.sync.aligned.m16n8k32.row.col.f16.{{e4m3,e5m2}}.{{e4m3,e5m2}}.f16  | 2 | 4 2 2 | {_MMA}
mma.sync.aligned.m8n8k16.row.col.{{,satfinite.}}s32.{{s8,u8}}.{{s8,u8}}.s32   | 2 | 1 1 2 | {_EXACT}
mma.sync.aligned.m16n8k16.row.col.{{,satfinite.}}s32.{{s8,u8}}.{{s8,u8}}.s32  | 4 | 2 1 4 | {_EXACT}
mma.sync.aligned.m16n8k32.row.col.{{,satfinite.}}s32.{{s8,u8}}.{{s8,u8}}.s32  | 4 | 4 2 4 | {_EXACT}
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64    | 2 | 1 1 2 | {_EXACT}
mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64   | 4 | 2 1 4 | {_EXACT}
mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64   | 4 | 4 2 4 | {_EXACT}
mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64  | 4 | 8 4 4 | {_EXACT}
movmatrix.sync.aligned.m8n8.trans.b16              | 1 | 1 | {_TILES}
"""
