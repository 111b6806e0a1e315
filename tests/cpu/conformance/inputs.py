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

from tests.cpu.conformance.form import Form
from tests.cpu.conformance.specials import SPECIALS
from tests.cpu.conformance.tiles import WARP, Words, tile


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
