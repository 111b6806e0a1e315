"""Every form that the executor promises, as tables; `form.parse` says how to read them."""

from __future__ import annotations

import functools

from tests.cpu.conformance.form import Form, parse
from tests.cpu.conformance.products import products

CONVERSIONS = """
    cvt.{rn,rz,rm,rp}.{,ftz.,sat.,ftz.sat.}f32.f64 | f32 | f64
    cvt.{,ftz.,sat.}f64.f32 | f64 | f32
    cvt.{,ftz.,sat.,ftz.sat.}f32.f32 | f32 | f32
    cvt.{rni,rzi,rmi,rpi}.{,ftz.,sat.}f32.f32 | f32 | f32
    cvt.{rni,rzi,rmi,rpi}.f64.f64 | f64 | f64
    cvt.{rni,rzi,rmi,rpi}.f16.f16 | f16 | f16
    cvt.{rni,rzi,rmi,rpi}.bf16.bf16 | bf16 | bf16
    cvt.{rni,rzi,rmi,rpi}.{,ftz.}{u16,s16}.f32 | <2> | f32
    cvt.{rni,rzi,rmi,rpi}.{,ftz.}{u32,s32}.f32 | <2> | f32
    cvt.{rni,rzi,rmi,rpi}.{,ftz.}{u64,s64}.f32 | <2> | f32
    cvt.{rni,rzi}.{sat.}{u8,s8}.f32 | b32 | f32
    cvt.{rni,rzi,rmi,rpi}.{u8,s8}.f32 | b32 | f32
    cvt.{rni,rzi,rmi,rpi}.{u16,s16,u32,s32,u64,s64}.f64 | <1> | f64
    cvt.{rni,rzi,rmi,rpi}.{u16,s16,u32,s32,u64,s64}.f16 | <1> | f16
    cvt.{rni,rzi,rmi,rpi}.{u16,s16,u32,s32,u64,s64}.bf16 | <1> | bf16
    cvt.{rni,rzi}.{u8,s8}.f16 | b32 | f16
    cvt.{rn,rz,rm,rp}.f32.{u16,s16,u32,s32,u64,s64} | f32 | <1>
    cvt.{rn,rz,rm,rp}.f64.{u16,s16,u32,s32,u64,s64} | f64 | <1>
    cvt.{rn,rz,rm,rp}.f16.{u16,s16,u32,s32,u64,s64} | f16 | <1>
    cvt.{rn,rz,rm,rp}.bf16.{u16,s16,u32,s32,u64,s64} | bf16 | <1>
    cvt.rn.{f32,f64,f16}.{u8,s8} | <0> | b32
    cvt.{,sat.}{u8,s8}.{u16,s16,u32,s32,u64,s64} | b32 | <2>
    cvt.{u16,s16,u32,s32,u64,s64}.{u16,s16,u32,s32,u64,s64} | <0> | <1>
    cvt.sat.u16.{s16,u32,s32,u64,s64} | u16 | <0>
    cvt.sat.s16.{u16,u32,s32,u64,s64} | s16 | <0>
    cvt.sat.u32.{s16,s32,u64,s64} | u32 | <0>
    cvt.sat.s32.{u32,u64,s64} | s32 | <0>
    cvt.sat.u64.{s16,s32,s64} | u64 | <0>
    cvt.sat.s64.u64 | s64 | u64
    cvt.{u16,s16,u32,s32,u64,s64}.{u8,s8} | <0> | b32
    cvt.{rn,rz,rm,rp}.f16.f32 | f16 | f32
    cvt.{rn,rz}.{ftz.,sat.,ftz.sat.}f16.f32 | f16 | f32
    cvt.{rn,rz}.{relu.,satfinite.,relu.satfinite.}f16.f32 | f16 | f32
    cvt.{rn,rz,rm,rp}.{bf16}.f32 | <1> | f32
    cvt.{rn,rz}.{relu.,satfinite.,relu.satfinite.}bf16.f32 | bf16 | f32
    cvt.{rn,rz}.{,relu.,satfinite.,relu.satfinite.}f16x2.f32 | f16x2 | f32 f32
    cvt.{rn,rz}.{,relu.,satfinite.,relu.satfinite.}bf16x2.f32 | bf16x2 | f32 f32
    cvt.{rn,rz,rm,rp}.{f16,bf16}.f64 | <1> | f64
    cvt.{,ftz.,sat.}f32.f16 | f32 | f16
    cvt.f64.f16 | f64 | f16
    cvt.{f32,f64}.bf16 | <0> | bf16
    cvt.{rn,rz,rm,rp}.bf16.f16 | bf16 | f16
    cvt.{rn,rz,rm,rp}.f16.bf16 | f16 | bf16
    cvt.{,sat.}f16.f16 | f16 | f16
    cvt.{rna,rn,rz,rna.satfinite,rn.relu,rz.relu}.tf32.f32 | b32 | f32
    cvt.rn.satfinite.{,relu.}{e4m3x2,e5m2x2}.f32 | b16 | f32 f32
    cvt.rn.satfinite.{,relu.}{e4m3x2,e5m2x2}.f16x2 | b16 | f16x2
    cvt.rn.{,relu.}f16x2.{e4m3x2,e5m2x2} | f16x2 | small16
    cvt.pack.sat.{u16,s16}.s32 | b32 | s32 s32
    cvt.pack.sat.{u8,s8}.s32.b32 | b32 | s32 s32 b32
"""

FLOATS = """
    {add,sub,mul}.{rn,rz,rm,rp}.{,ftz.,sat.,ftz.sat.}f32 | f32 | f32 f32
    fma.{rn,rz,rm,rp}.{,ftz.,sat.,ftz.sat.}f32 | f32 | f32 f32 f32
    {add,sub,mul}.{rn,rz,rm,rp}.f64 | f64 | f64 f64
    fma.{rn,rz,rm,rp}.f64 | f64 | f64 f64 f64
    div.{rn,rz,rm,rp}.{,ftz.}f32 | f32 | f32 f32
    div.{rn,rz,rm,rp}.f64 | f64 | f64 f64
    {rcp,sqrt}.{rn,rz,rm,rp}.{,ftz.}f32 | f32 | f32
    {rcp,sqrt}.{rn,rz,rm,rp}.f64 | f64 | f64
    {neg,abs}.{,ftz.}f32 | f32 | f32
    {neg,abs}.f64 | f64 | f64
    {min,max}.{,ftz.}{,NaN.}{,xorsign.abs.}f32 | f32 | f32 f32
    {min,max}.f64 | f64 | f64 f64
    copysign.{f32,f64} | <0> | <0> <0>
    testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64} | pred | <1>
    setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{,ftz.}f32 | pred | f32 f32
    setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64 | pred | f64 f64
    set.{eq,lt,geu,nan}.{u32,f32}.f32 | <1> | f32 f32
    selp.{f32,f64} | <0> | <0> <0> pred
    slct.{f32,f64}.s32 | <0> | <0> <0> s32
    slct.{,ftz.}{u32,f32}.f32 | <1> | <1> <1> f32
    div.{full,approx}.{,ftz.}f32 | f32 | f32 f32 | ulp=3
    {rcp,sqrt}.approx.{,ftz.}f32 | f32 | f32 | ulp=1
    {rsqrt,ex2}.approx.{,ftz.}f32 | f32 | f32 | ulp=2
    lg2.approx.{,ftz.}f32 | f32 | f32 | ulp=3 within=-22
    {sin,cos}.approx.{,ftz.}f32 | f32 | f32 | ulp=1 within=-21
    tanh.approx.f32 | f32 | f32 | ulp=140
    # One in the last place of the upper word; the lower one is zero.
    {rcp,rsqrt}.approx.ftz.f64 | f64 | f64 | ulp=4294967296
"""

HALVES = """
    {add,sub,mul}.{,rn.}{,sat.,ftz.,ftz.sat.}{f16} | f16 | f16 f16
    {add,sub,mul}.{,rn.}{,sat.,ftz.,ftz.sat.}{f16x2} | f16x2 | f16x2 f16x2
    {add,sub,mul}.{,rn.}bf16 | bf16 | bf16 bf16
    {add,sub,mul}.{,rn.}bf16x2 | bf16x2 | bf16x2 bf16x2
    fma.rn.{,sat.,ftz.,ftz.sat.,relu.,ftz.relu.}f16 | f16 | f16 f16 f16
    fma.rn.{,sat.,ftz.,relu.}f16x2 | f16x2 | f16x2 f16x2 f16x2
    fma.rn.{,relu.}{bf16,bf16x2} | <1> | <1> <1> <1>
    {neg,abs}.{,ftz.}{f16,f16x2} | <2> | <2>
    {neg,abs}.{bf16,bf16x2} | <1> | <1>
    {min,max}.{,ftz.}{,NaN.}{,xorsign.abs.}{f16,f16x2} | <4> | <4> <4>
    {min,max}.{,NaN.}{,xorsign.abs.}{bf16,bf16x2} | <3> | <3> <3>
    setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{,ftz.}f16 | pred | f16 f16
    setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.bf16 | pred | bf16 bf16
    setp.{eq,lt,ge,neu,gtu,num,nan}.f16x2 $0|$1, $2, $3 | pred pred | f16x2 f16x2
    setp.{eq,lt,ge,neu,gtu,num,nan}.bf16x2 $0|$1, $2, $3 | pred pred | bf16x2 bf16x2
    set.{eq,lt,geu,nan}.{f16,u16,u32}.f16 | <1> | f16 f16
    set.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f16x2,u32}.f16x2 | b32 | f16x2 f16x2
    set.{eq,lt,geu,nan}.{bf16,u16,u32}.bf16 | <1> | bf16 bf16
    set.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{bf16x2,u32}.bf16x2 | b32 | bf16x2 bf16x2
    ex2.approx.{f16,f16x2} | <0> | <0>
    ex2.approx.ftz.{bf16,bf16x2} | <0> | <0>
    tanh.approx.{f16,f16x2,bf16,bf16x2} | <0> | <0> | ulp=1
"""

INTEGERS = """
    {add,sub}.{u16,s16,u32,s32,u64,s64} | <1> | <1> <1>
    {add,sub}.sat.s32 | s32 | s32 s32
    mul.{lo,hi}.{u16,s16,u32,s32,u64,s64} | <1> | <1> <1>
    mul.wide.{u16,s16} | b32 | <0> <0>
    mul.wide.{u32,s32} | b64 | <0> <0>
    mad.{lo,hi}.{u16,s16,u32,s32,u64,s64} | <1> | <1> <1> <1>
    mad.wide.{u16,s16} | b32 | <0> <0> b32
    mad.wide.{u32,s32} | b64 | <0> <0> b64
    mad.hi.sat.s32 | s32 | s32 s32 s32
    mul24.{lo,hi}.{u32,s32} | <1> | <1> <1>
    mad24.{lo,hi}.{u32,s32} | <1> | <1> <1> <1>
    mad24.hi.sat.s32 | s32 | s32 s32 s32
    add.cc.{u32,s32} $0, $2, $3; addc.{u32} $1, $4, $5 | b32 b32 | b32 b32 b32 b32
    add.cc.u32 $0, $3, $4; addc.cc.u32 $1, $5, $6; addc.u32 $2, $7, $8 | b32 b32 b32 | b32 b32 b32 b32 b32 b32
    sub.cc.u32 $0, $3, $4; subc.cc.u32 $1, $5, $6; subc.u32 $2, $7, $8 | b32 b32 b32 | b32 b32 b32 b32 b32 b32
    add.cc.u64 $0, $2, $3; addc.u64 $1, $4, $5 | b64 b64 | b64 b64 b64 b64
    sub.cc.u64 $0, $2, $3; subc.u64 $1, $4, $5 | b64 b64 | b64 b64 b64 b64
    mad.{lo,hi}.cc.{u32,s32} $0, $2, $3, $4; madc.hi.u32 $1, $2, $3, $5 | b32 b32 | b32 b32 b32 b32
    mad.lo.cc.u32 $0, $3, $4, $5; madc.hi.cc.u32 $1, $3, $4, $6; addc.u32 $2, $7, $8 | b32*3 | b32*6
    mad.lo.cc.u64 $0, $2, $3, $4; madc.hi.u64 $1, $2, $3, $5 | b64 b64 | b64 b64 b64 b64
    div.{u16,s16,u32,s32,u64,s64} | <0> | <0> <0>
    rem.{u16,s16,u32,s32,u64,s64} | <0> | <0> <0>
    {abs,neg}.{s16,s32,s64} | <1> | <1>
    {min,max}.{u16,s16,u32,s32,u64,s64} | <1> | <1> <1>
    {min,max}.relu.s32 | s32 | s32 s32
    {min,max}.{u16x2,s16x2} | b32 | b32 b32
    {min,max}.relu.s16x2 | b32 | b32 b32
    add.{u16x2,s16x2} | b32 | b32 b32
    sad.{u16,s16,u32,s32,u64,s64} | <0> | <0> <0> <0>
    {and,or,xor}.{b16,b32,b64} | <1> | <1> <1>
    {and,or,xor}.pred | pred | pred pred
    not.{pred,b16,b32,b64} | <0> | <0>
    cnot.{b16,b32,b64} | <0> | <0>
    shl.{b16,b32} | <0> | <0> count
    shl.b64 | b64 | b64 count64
    shr.{b16,u16,s16,b32,u32,s32} | <0> | <0> count
    shr.{b64,u64,s64} | <0> | <0> count64
    shf.{l,r}.{clamp,wrap}.b32 | b32 | b32 b32 count
    bfe.{u32,s32} | <0> | <0> count count
    bfe.{u64,s64} | <0> | <0> count64 count64
    bfi.b32 | b32 | b32 b32 count count
    bfi.b64 | b64 | b64 b64 count64 count64
    bfind.{,shiftamt.}{u32,s32} | b32 | <1>
    bfind.{,shiftamt.}{u64,s64} | b32 | <1>
    brev.{b32,b64} | <0> | <0>
    {clz,popc}.{b32,b64} | b32 | <1>
    szext.{wrap,clamp}.{u32,s32} | b32 | <1> count
    bmsk.{wrap,clamp}.b32 | b32 | count count
    prmt.b32 | b32 | b32 b32 b32
    prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16} | b32 | b32 b32 b32
    lop3.b32 $0, $1, $2, $3, {0x01,0x1e,0x2d,0x6a,0x78,0x80,0x96,0xb8,0xca,0xe8,0xfe} | b32 | b32 b32 b32
    dp4a.{u32,s32}.{u32,s32} | b32 | b32 b32 b32
    dp2a.{lo,hi}.{u32,s32}.{u32,s32} | b32 | b32 b32 b32
    setp.{eq,ne,lt,le,gt,ge}.{u16,s16,u32,s32,u64,s64} | pred | <1> <1>
    setp.{lo,ls,hi,hs}.{u16,u32,u64} | pred | <1> <1>
    setp.{lt,ge}.{and,or,xor}.s32 $0, $1, $2, $3 | pred | s32 s32 pred
    setp.{lt,ge}.{and,or,xor}.s32 $0|$1, $2, $3, $4 | pred pred | s32 s32 pred
    set.{eq,lt}.{u32,s32,f32}.{u32,s32} | <1> | <2> <2>
    selp.{b16,b32,b64} | <0> | <0> <0> pred
    slct.{b32,b64}.s32 | <0> | <0> <0> s32
    mov.b32 $0, {$1, $2} | b32 | b16 b16
    mov.b64 $0, {$1, $2} | b64 | b32 b32
    mov.b32 {$0, $1}, $2 | b16 b16 | b32
    mov.b64 {$0, $1}, $2 | b32 b32 | b64
    mov.b64 $0, {$1, $2, $3, $4} | b64 | b16 b16 b16 b16
    mov.b64 {$0, $1, $2, $3}, $4 | b16 b16 b16 b16 | b64
"""

WARPS = """
    shfl.sync.up.b32 $0|$1, $2, $3, $4, $5 | b32 pred | b32 lane segments0 mask | warp
    shfl.sync.{down,idx}.b32 $0|$1, $2, $3, $4, $5 | b32 pred | b32 lane segments mask | warp
    shfl.sync.bfly.b32 $0|$1, $2, $3, $4, $5 | b32 pred | b32 flip segments mask | warp
    shfl.sync.up.b32 $0, $1, $2, $3, $4 | b32 | b32 lane segments0 mask | warp
    shfl.sync.{down,idx}.b32 $0, $1, $2, $3, $4 | b32 | b32 lane segments mask | warp
    shfl.sync.bfly.b32 $0, $1, $2, $3, $4 | b32 | b32 flip segments mask | warp
    vote.sync.{all,any,uni}.pred | pred | pred mask | warp
    vote.sync.ballot.b32 | b32 | pred mask | warp
    vote.sync.{all,any,uni}.pred $0, !$1, $2 | pred | pred mask | warp
    match.any.sync.b32 | b32 | few mask | warp
    match.any.sync.b64 | b32 | u64 mask | warp
    match.all.sync.b32 $0|$1, $2, $3 | b32 pred | same mask | warp
    match.all.sync.b64 $0|$1, $2, $3 | b32 pred | same64 mask | warp
    redux.sync.{add,min,max}.{u32,s32} | b32 | <1> mask | warp
    redux.sync.{and,or,xor}.b32 | b32 | b32 mask | warp
    elect.sync $0|$1, $2 | b32 pred | mask | warp
    activemask.b32 $0 | b32 | mask | warp
"""

ATOMICS = """
    atom.{global,shared}.add.{u32,s32,u64,f32,f64} | <1> <1> | slot:<1> <1> | atomic
    atom.{global,shared}.add.noftz.{f16,f16x2,bf16,bf16x2} | <1> <1> | slot:<1> <1> | atomic
    atom.{global,shared}.{min,max}.{u32,s32,u64,s64} | <2> <2> | slot:<2> <2> | atomic
    atom.{global,shared}.{and,or,xor}.{b32,b64} | <2> <2> | slot:<2> <2> | atomic
    atom.{global,shared}.exch.{b32,b64} | <1> <1> | slot:<1> <1> | atomic
    atom.{global,shared}.{inc,dec}.u32 | u32 u32 | slot:u32 u32 | atomic
    atom.{global,shared}.cas.{b16,b32,b64} | <1> <1> | slot:<1> same:<1> <1> | atomic
    atom.acq_rel.gpu.global.add.u32 | u32 u32 | slot:u32 u32 | atomic
    red.{global,shared}.add.{u32,s32,u64,f32,f64} [$0], $1 | <1> | slot:<1> <1> | atomic
    red.{global,shared}.add.noftz.{f16,f16x2,bf16,bf16x2} [$0], $1 | <1> | slot:<1> <1> | atomic
    red.{global,shared}.{min,max}.{u32,s32,u64,s64} [$0], $1 | <2> | slot:<2> <2> | atomic
    red.{global,shared}.{and,or,xor}.{b32,b64} [$0], $1 | <2> | slot:<2> <2> | atomic
    red.{global,shared}.{inc,dec}.u32 [$0], $1 | u32 | slot:u32 u32 | atomic
    atom.global.v2.f32.add {$0, $1}, [$2], {$3, $4} | f32 f32 f32 f32 | slot:f32 slot:f32 f32 f32 | atomic
    atom.global.v4.f32.add {$0, $1, $2, $3}, [$4], {$5, $6, $7, $8} | f32*8 | slot:f32*4 f32*4 | atomic
    red.global.v2.f32.add [$0], {$1, $2} | f32 f32 | slot:f32 slot:f32 f32 f32 | atomic
    red.global.v4.f32.add [$0], {$1, $2, $3, $4} | f32*4 | slot:f32*4 f32*4 | atomic
    red.global.v2.{f16x2,bf16x2}.{add,min,max}.noftz [$0], {$1, $2} | <0> <0> | slot:<0> slot:<0> <0> <0> | atomic
    red.global.v4.{f16x2,bf16x2}.{add,min,max}.noftz [$0], {$1, $2, $3, $4} | <0>*4 | slot:<0>*4 <0>*4 | atomic
"""

MATRICES = """
    ldmatrix.sync.aligned.m8n8.x1.{,trans.}shared.b16 {$0}, [$1] | b32 | word word word word rows | matrix
    ldmatrix.sync.aligned.m8n8.x2.{,trans.}shared.b16 {$0, $1}, [$2] | b32 b32 | word*4 rows | matrix
    ldmatrix.sync.aligned.m8n8.x4.{,trans.}shared.b16 {$0, $1, $2, $3}, [$4] | b32*4 | word*4 rows | matrix
    stmatrix.sync.aligned.m8n8.x1.{,trans.}shared.b16 [$0], {$1} | b32*4 | word*4 rows word | matrix
    stmatrix.sync.aligned.m8n8.x2.{,trans.}shared.b16 [$0], {$1, $2} | b32*4 | word*4 rows word word | matrix
    stmatrix.sync.aligned.m8n8.x4.{,trans.}shared.b16 [$0], {$1, $2, $3, $4} | b32*4 | word*4 rows word*4 | matrix
    movmatrix.sync.aligned.m8n8.trans.b16 | b32 | word | warp
"""


@functools.cache
def forms() -> tuple[Form, ...]:
    """All forms, in the order of the tables."""
    tables = (CONVERSIONS, FLOATS, HALVES, INTEGERS, WARPS, ATOMICS, MATRICES, products())
    return tuple(form for table in tables for form in parse(table))
