// Integers: fields of bits, bytes picked from two words, dot products of small elements, halves of a word side by side.
#pragma once

#include "value.h"

namespace kg {

using half_u32 = uint16_t;
using half_s32 = int16_t;
using byte_u32 = uint8_t;
using byte_s32 = int8_t;

// A field of 64-bit words that starts at a bit and has a length, all 32 bits of which count (in the instructions on
// 32-bit words only the low 8 do); above the top bit there are copies of it, or zeros.
template <typename Int, typename Unsigned>
static inline Int field(Int x, uint32_t start, uint32_t length)
{
    constexpr uint32_t width = 8 * sizeof x;
    if (length == 0) return 0;
    const uint64_t last = uint64_t(start) + length - 1;
    const bool top = Limits<Int>::is_signed && (Unsigned(x) >> (last < width ? last : width - 1) & 1);
    Unsigned found = start < width ? Unsigned(x) >> start : 0;
    const uint32_t valid = start >= width ? 0 : length < width - start ? length : width - start;
    if (valid < width) found &= (Unsigned(1) << valid) - 1;
    return Int(top && valid < width ? found | ~Unsigned(0) << valid : found);
}

template <typename Unsigned>
static inline Unsigned inserted(Unsigned from, Unsigned into, uint32_t start, uint32_t length)
{
    constexpr uint32_t width = 8 * sizeof from;
    if (start >= width || length == 0) return into;
    const Unsigned mask = (length < width ? (Unsigned(1) << length) - 1 : ~Unsigned(0)) << start;
    return (into & ~mask) | (from << start & mask);
}

static inline uint32_t ones(uint32_t start, uint32_t length)
{
    const uint32_t mask = length < 32 ? (1u << length) - 1 : ~0u;
    return start < 32 ? mask << start : 0;
}

// The low bits of a word, and above them zeros or copies of their top bit.
static inline uint32_t zero_extended(uint32_t x, uint32_t bits) { return bits < 32 ? x & ((1u << bits) - 1) : x; }
static inline int32_t sign_extended(uint32_t x, uint32_t bits)
{
    return bits == 0 ? 0 : bits >= 32 ? int32_t(x) : int32_t(x << (32 - bits)) >> (32 - bits);
}

// prmt's modes: byte i of the result is byte `pick` of the eight in b:a; or, as c says for each, eight times its sign.
enum Permutation { general, f4e, b4e, rc8, ecl, ecr, rc16 };
template <Permutation P>
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t c)
{
    const uint64_t bytes = a | uint64_t(b) << 32;
    const uint32_t s = c & 3;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t pick = P == general ? c >> 4 * i & 15
            : P == f4e ? s + i
            : P == b4e ? (s - i) & 7
            : P == rc8 ? s
            : P == ecl ? (i > s ? i : s)
            : P == ecr ? (i < s ? i : s)
                       : (s & 1) * 2 + (i & 1);
        const uint32_t byte = bytes >> 8 * (pick & 7) & 255;
        result |= (pick & 8 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return result;
}

// The elements of a times as many bytes of b, from the FIRST on.
template <typename Element, typename Byte, int FIRST>
static inline uint32_t dot(uint32_t a, uint32_t b, uint32_t c)
{
    constexpr int bits = 8 * sizeof(Element);
    for (int i = 0; i < 32 / bits; ++i) c += int32_t(Element(a >> bits * i)) * int32_t(Byte(b >> 8 * (FIRST + i)));
    return c;
}

static inline uint32_t each_sum(uint32_t a, uint32_t b)
{
    return ((a + b) & 0xffff) | ((a & 0xffff0000u) + (b & 0xffff0000u));
}
template <Extreme WHICH, typename Half, bool RELU>
static inline uint32_t each_extreme(uint32_t a, uint32_t b)
{
    uint32_t result = 0;
    for (int i = 0; i < 2; ++i) {
        const Half x = Half(a >> 16 * i), y = Half(b >> 16 * i);
        const Half found = (x < y) == (WHICH == max) ? y : x;
        result |= uint32_t(uint16_t(RELU && found < Half(0) ? Half(0) : found)) << 16 * i;
    }
    return result;
}

// Bits 47 to 16 of a product of 24-bit numbers, or bits 31 to 0.
static inline uint32_t high_24(uint32_t a, uint32_t b)
{
    return uint32_t(uint64_t(a & 0xffffff) * (b & 0xffffff) >> 16);
}
static inline uint32_t low_24(uint32_t a, uint32_t b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline int64_t product_24(int32_t a, int32_t b) { return int64_t(sign_extended(a, 24)) * sign_extended(b, 24); }
static inline int32_t high_24(int32_t a, int32_t b) { return int32_t(product_24(a, b) >> 16); }
static inline int32_t low_24(int32_t a, int32_t b) { return int32_t(product_24(a, b)); }

// x rem 0 has all bits set.
template <typename Int>
static inline Int remainder_of(Int a, Int b)
{
    return b == Int(0) ? Int(-1) : Int(b + Int(1)) == Int(0) && Int(-1) < Int(0) ? Int(0) : Int(a % b);
}

}  // namespace kg
