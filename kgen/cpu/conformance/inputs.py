"""Inputs of every type, the same wherever and whenever they are made: they follow from a form's name alone.

Half of the lanes take special values (all pairs of them, where there are two operands), the others random ones that are
dense where rounding is decided: bit patterns, numbers of like size, ties of the narrower formats, integers and halves.
Only the raw words of a generator are used, which NumPy promises to keep.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kgen.cpu.conformance.form import Form
from kgen.cpu.conformance.tiles import WARP, Words, tile

SPECIALS = {
    "f32": """00000000 80000000 7f800000 ff800000 7fffffff 7fc12345 7f812345 ff8abcde 00000001 80000001 007fffff
        00800000
        7f7fffff ff7fffff 3f800000 bf800000 3f800001 3f7fffff 40000000 3f000000 bf000000 3fc00000 40200000 477fe000
        477fefff 477ff000 33800000 33000000 33000001 387fc000 387fe000 3f801000 3f803000 3f808000 3f818000 7f7f8000
        4f000000 cf000000 4effffff 4f800000 5f000000 df000000 5f800000 42ff0000 43000000 437f8000 c3008000 43e00000
        43e80000 43e7ffff 47600000 47700000 3b000000 3a800000 37800000 c2fc0000 c3150000 c3160000 42fe0000 43000001
        00800001 3f7ffffe""",
    "f16": """0000 8000 7c00 fc00 7fff 7e01 7c01 fd23 0001 8001 03ff 0400 7bff fbff 3c00 bc00 3c01 3bff 4000 3800
        b800 3e00
        4100 5bff 6400 6401 e400 5700 5f00 7b00 1400 2c00 0010 0200 4900 c900 4d00 5640 3bfe 0401""",
    "bf16": """0000 8000 7f80 ff80 7fff 7fc1 7f81 ff91 0001 8001 007f 0080 7f7f ff7f 3f80 bf80 3f81 3f7f 4000 3f00 bf00
        3fc0 4020 4300 4380 43e0 43e8 4760 3380 3300 4f00 cf00 0100 2000 6000 c2fc""",
    "f64": """0000000000000000 8000000000000000 7ff0000000000000 fff0000000000000 7fffffffffffffff 7ff8123456789abc
        7ff0000000000001 fff4000000000000 0000000000000001 800fffffffffffff 0010000000000000 7fefffffffffffff
        ffefffffffffffff 3ff0000000000000 bff0000000000000 3ff0000000000001 3fefffffffffffff 4000000000000000
        3fe0000000000000 bfe0000000000000 3ff8000000000000 4004000000000000 47efffffe0000000 47effffff0000000
        36a0000000000000 3690000000000000 3690000000000001 380fffffc0000000 3ff0000010000000 3ff0000030000000
        41e0000000000000 c1e0000000000000 41dfffffffc00000 41efffffffe00000 43e0000000000000 c3e0000000000000
        43f0000000000000 40effc0000000000 40effe0000000000 3e60000000000000 432fffffffffffff 4330000000000001""",
    "u32": """0 1 2 3 7f 80 ff 100 7fff 8000 ffff 10000 7fffff 800000 ffffff 1000000 1000001 1000003 7fffffff 80000000
        80000001 fffffffe ffffffff ffff8000 ffffff80 55555555 aaaaaaaa 1f 20 21 40 deadbeef""",
    "u64": """0 1 2 ff 7fff 8000 ffff 7fffffff 80000000 ffffffff 100000000 20000000000001 7fffffffffffffff
        8000000000000000 8000000000000001 ffffffffffffffff fffffffffffffffe 5555555555555555 ffffffff80000000
        ffffffffffff8000 1000001 1000003 8000000000000400 8000000000000401 123456789abcdef0""",
    "u16": "0 1 2 3 7f 80 ff 100 7fff 8000 8001 fffe ffff 5555 aaaa 400 401 801 803 1003",
}


class Stream(NamedTuple):
    """Where a domain draws from: random words at will, and what operands of one form share."""

    words: Callable[[], Words]
    lanes: int
    operand: int
    operands: int
    shared: dict[str, Words]


def inputs_of(form: Form) -> list[Words]:
    """One array for each operand, a word per lane; narrower types lie in the low bits."""
    seed = zlib.crc32(form.name.encode())
    shared: dict[str, Words] = {}
    columns = []
    for operand, domain in enumerate(form.ins):
        words = functools.partial(_raw_words, np.random.PCG64([seed, operand]), form.cases)
        stream = Stream(words, form.cases, operand, len(form.ins), shared)
        columns.append(_drawn(domain, stream))
    return columns


def _raw_words(bits: np.random.PCG64, count: int) -> Words:
    return np.asarray(bits.random_raw(count), np.uint64)


def _drawn(domain: str, stream: Stream) -> Words:
    """`slot:f32` is what memory holds before an atomic, `same:f32` equals it in every other lane, `mma:` is a tile."""
    purpose, _, kind = domain.rpartition(":")
    if purpose == "mma":
        return tile(kind, stream.words, stream.lanes)
    found = DOMAINS[kind](stream)
    if purpose == "slot":
        stream.shared["slot"] = found
    if purpose == "same":
        found[::2] = stream.shared["slot"][::2]
    return found


def _hex(text: str) -> Words:
    return np.array([int(word, 16) for word in text.split()], np.uint64)


def _with_specials(name: str, values: Callable[[Stream], Words]) -> Callable[[Stream], Words]:
    special = _hex(SPECIALS[name])

    def domain(stream: Stream) -> Words:
        found = values(stream)
        half = stream.lanes // 2
        index = np.arange(half) // len(special) ** stream.operand if stream.operands <= 2 else stream.words()[:half]
        found[:half] = special[(index % len(special)).astype(np.int64)]
        return found

    return domain


def _float(exponent_bits: int, mantissa_bits: int, ties: tuple[int, ...]) -> Callable[[Stream], Words]:
    """Patterns, numbers within 2^16 of one, ties of formats with fewer mantissa bits, integers and halves."""
    bias = np.uint64(2 ** (exponent_bits - 1) - 1)
    m = np.uint64(mantissa_bits)
    low = np.uint64(2**mantissa_bits - 1)

    def values(stream: Stream) -> Words:
        kind, bits, more = (stream.words() for _ in range(3))
        sign = (bits >> np.uint64(63)) << np.uint64(exponent_bits + mantissa_bits)
        near = sign | (
            (bias - np.uint64(min(16, 2 ** (exponent_bits - 1) - 2)) + (bits >> np.uint64(53)) % np.uint64(32)) << m
        )
        found = bits >> np.uint64(63 - exponent_bits - mantissa_bits)
        kind %= np.uint64(8)
        found = np.where(kind >= 2, near | (more & low), found)
        for at, tie in enumerate(ties):
            cut = np.uint64(tie)
            tied = ((more & low) >> cut << cut) | np.uint64(1 << (tie - 1))
            tied += np.where(bits % np.uint64(5) == 0, np.uint64(1), np.uint64(0))
            found = np.where(kind == 4 + at, near | tied, found)
        whole = low ^ (low >> np.uint64(min(7, mantissa_bits)))
        return np.where(kind == 7, near | (more & whole), found)

    return values


def _integer(width: int) -> Callable[[Stream], Words]:
    """Patterns shifted right by any count, either sign of them."""

    def values(stream: Stream) -> Words:
        bits, more = stream.words(), stream.words()
        found = bits >> np.uint64(64 - width) >> more % np.uint64(width)
        found = np.where(more >> np.uint64(63) == 0, found, ~found)
        return found & np.uint64(2**width - 1)

    return values


def _pair(name: str) -> Callable[[Stream], Words]:
    """Two numbers of 16 bits in one register."""
    half = DOMAINS[name]

    def domain(stream: Stream) -> Words:
        low = half(stream)
        high = half(stream._replace(operand=stream.operands))  # the other half pairs its specials another way
        return low | np.roll(high, 7 + 5 * stream.operand) << np.uint64(16)

    return domain


def _uniform(stream: Stream) -> Words:
    """A random word for each warp."""
    return np.repeat(stream.words()[: stream.lanes // WARP], WARP)


def _mask(stream: Stream) -> Words:
    """Who takes part, the same for a warp: everybody, some, one lane, or the union of segments that operand c made."""
    if "mask" in stream.shared:
        return stream.shared["mask"]
    kind, bits = _uniform(stream) % np.uint64(4), _uniform(stream)
    some = bits & np.uint64(0xFFFFFFFF)
    one = np.uint64(1) << bits % np.uint64(32)
    mask = np.where(kind == 3, one, np.where((kind == 2) & (some != 0), some, np.uint64(0xFFFFFFFF)))
    stream.shared["mask"] = mask
    return mask


def _segment_width(stream: Stream) -> Words:
    if "width" not in stream.shared:
        stream.shared["width"] = np.uint64(1) << _uniform(stream) % np.uint64(6)
    width: Words = stream.shared["width"]
    return width


def _flip(stream: Stream) -> Words:
    """What shfl.bfly exchanges lanes by, within their segment."""
    width = _segment_width(stream)
    return stream.words() % width


def _segments(bound: int) -> Callable[[Stream], Words]:
    """Operand c of shfl for segments of 1 to 32 lanes; the mask takes whole segments, so none reads an absent lane."""

    def domain(stream: Stream) -> Words:
        width = _segment_width(stream)
        bits = _uniform(stream)
        mask = np.zeros_like(bits)
        for lane in range(WARP):
            segment = np.uint64(lane) // width
            mask |= (bits >> segment & np.uint64(1)) << np.uint64(lane)
        mask = np.where((mask == 0) | (bits >> np.uint64(62) == 0), np.uint64(0xFFFFFFFF), mask)
        stream.shared["mask"] = mask
        return (np.uint64(WARP) - width) << np.uint64(8) | np.uint64(bound)

    return domain


def _often_equal(bits: int) -> Callable[[Stream], Words]:
    """One word for all lanes of a warp, but in every fourth warp, where one lane may differ."""

    def domain(stream: Stream) -> Words:
        value = _uniform(stream) & np.uint64(2**bits - 1)
        odd = _uniform(stream) % np.uint64(4 * WARP)
        lanes = np.arange(stream.lanes, dtype=np.uint64) % np.uint64(WARP)
        return np.where(odd == lanes, value ^ np.uint64(1), value)

    return domain


def _rows(stream: Stream) -> Words:
    """A permutation of 0..31 for each warp."""
    keys = stream.words().reshape(-1, WARP)
    order: Words = np.argsort(keys, axis=1, kind="stable").astype(np.uint64)
    return order.reshape(-1)


def _below(bound: int) -> Callable[[Stream], Words]:
    return lambda stream: (
        stream.words() >> np.uint64(8) % np.uint64(64) if bound == 0 else stream.words() % np.uint64(bound)
    )


def _count(width: int) -> Callable[[Stream], Words]:
    """Shift counts, bit positions, lengths: mostly within the register, some beyond, some huge."""

    def domain(stream: Stream) -> Words:
        bits, kind = stream.words(), stream.words() % np.uint64(8)
        found = np.where(kind < 6, bits % np.uint64(width + 8), bits % np.uint64(300))
        return np.where(kind == 7, bits & np.uint64(0xFFFFFFFF), found)

    return domain


DOMAINS: dict[str, Callable[[Stream], Words]] = {
    "f32": _with_specials("f32", _float(8, 23, (13, 16, 13))),
    "f64": _with_specials("f64", _float(11, 52, (29, 42, 29))),
    "f16": _with_specials("f16", _float(5, 10, (7, 8))),
    "bf16": _with_specials("bf16", _float(8, 7, (4, 5))),
    "count": _count(32),
    "count64": _count(64),
    "mask": _mask,
    "segments": _segments(31),
    "segments0": _segments(0),
    "rows": _rows,
    "lane": _below(40),
    "flip": _flip,
    "few": _below(3),
    "same": _often_equal(32),
    "same64": _often_equal(64),
    "small16": _below(0x10000),
    "pred": _below(2),
    "word": lambda stream: stream.words() & np.uint64(0xFFFFFFFF),
    "word16": lambda stream: stream.words() & np.uint64(0xFFFF),
}
DOMAINS |= {name: _with_specials("u32", _integer(32)) for name in ("u32", "s32", "b32")}
DOMAINS |= {name: _with_specials("u64", _integer(64)) for name in ("u64", "s64", "b64")}
DOMAINS |= {name: _with_specials("u16", _integer(16)) for name in ("u16", "s16", "b16")}
DOMAINS |= {f"{name}x2": _pair(name) for name in ("f16", "bf16")}
