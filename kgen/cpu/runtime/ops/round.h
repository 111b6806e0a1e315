// Rounding to narrower formats, once and in every direction: what conversions, half arithmetic and matrix products
// share.
//
// Integers do the work, so results depend neither on the compiler's contraction of a * b + c nor on the CPU's mode.
#pragma once

#include "value.h"

namespace kg {

enum Rounding { rn, rz, rm, rp, rna };  // to nearest even, to zero, down, up, to nearest with ties away from zero

// A binary format: bits of exponent and mantissa, the code of the largest finite number, and of NaN as the GPU writes
// it.
template <int EXPONENT, int MANTISSA, uint64_t LARGEST, uint64_t NOT_A_NUMBER>
struct Format {
    static constexpr int exponent = EXPONENT;
    static constexpr int mantissa = MANTISSA;
    static constexpr int bias = (1 << (EXPONENT - 1)) - 1;
    static constexpr uint64_t largest = LARGEST;
    static constexpr uint64_t infinity = LARGEST + 1;
    static constexpr uint64_t nan = NOT_A_NUMBER;
    static constexpr int sign = EXPONENT + MANTISSA;
};
using f64 = Format<11, 52, 0x7fefffffffffffff, 0x7fffffffffffffff>;
using f32 = Format<8, 23, 0x7f7fffff, 0x7fffffff>;
using tf32 = Format<8, 10, 0x3fbff, 0x3ffff>;
using f16 = Format<5, 10, 0x7bff, 0x7fff>;
using bf16 = Format<8, 7, 0x7f7f, 0x7fff>;
using e5m2 = Format<5, 2, 0x7b, 0x7f>;
using e4m3 = Format<4, 3, 0x7e, 0x7f>;  // has no infinity

// `significand` without its last `dropped` bits, rounded; what a carry does to the exponent above it is right.
template <Rounding R, typename Word>
static inline Word shifted(Word significand, int dropped, bool negative)
{
    const Word kept = significand >> dropped;
    const Word rest = significand & ((Word(1) << dropped) - 1);
    const Word half = Word(1) << (dropped - 1);
    if (R == rn) return kept + (rest > half || (rest == half && (kept & 1)));
    if (R == rna) return kept + (rest >= half);
    if (R == rm) return kept + (negative && rest);
    if (R == rp) return kept + (!negative && rest);
    return kept;
}

// What a magnitude that is too large becomes.
template <typename To, Rounding R>
static inline uint64_t overflowed(bool negative)
{
    const bool away = R == rn || R == rna || (R == rm && negative) || (R == rp && !negative);
    return away ? To::infinity : To::largest;
}

// The code of a number of a wider format, from its bits in `Word`. Numbers that are too large become the largest one
// where the conversion is FINITE, and then so do infinities.
template <typename From, typename To, Rounding R, bool FINITE, typename Word>
static inline Word narrowed(Word bits)
{
    constexpr int drop = From::mantissa - To::mantissa;
    // the smallest exponent, as From writes it, of To's normals
    constexpr int first_normal = From::bias - To::bias + 1;
    const bool negative = bits >> From::sign & 1;
    const Word sign = Word(negative) << To::sign;
    const Word magnitude = bits & ((Word(1) << From::sign) - 1);
    if (magnitude > Word(From::infinity)) return Word(To::nan);
    if (magnitude == Word(From::infinity)) return sign | Word(FINITE ? To::largest : To::infinity);
    const int exponent = int(magnitude >> From::mantissa);
    Word code;
    if (exponent >= first_normal) {
        code = shifted<R>(Word(magnitude - (Word(first_normal - 1) << From::mantissa)), drop, negative);
    } else {
        const Word hidden = exponent ? Word(1) << From::mantissa : 0;
        const Word significand = (magnitude & ((Word(1) << From::mantissa) - 1)) | hidden;
        const int more = first_normal - (exponent ? exponent : 1);
        // Below all bits, only whether there is anything counts.
        const int dropped = drop + more > From::mantissa + 2 ? From::mantissa + 2 : drop + more;
        code = dropped ? shifted<R>(significand, dropped, negative) : significand;
    }
    if (code > Word(To::largest)) code = Word(FINITE ? To::largest : overflowed<To, R>(negative));
    return sign | code;
}

// The code of (-1)^negative * magnitude.
template <typename To, Rounding R>
static inline uint64_t from_magnitude(uint64_t magnitude, bool negative)
{
    if (magnitude == 0) return 0;
    const int top = 63 - __builtin_clzll(magnitude);
    const uint64_t sign = uint64_t(negative) << To::sign;
    const int dropped = top - To::mantissa;
    // The hidden bit adds one to the exponent.
    const uint64_t exponent = uint64_t(To::bias + top - 1) << To::mantissa;
    const uint64_t code = exponent + (dropped > 0 ? shifted<R>(magnitude, dropped, negative) : magnitude << -dropped);
    return sign | (code > To::largest ? overflowed<To, R>(negative) : code);
}

template <typename To, Rounding R>
static inline uint64_t from_integer(int64_t x)
{
    return from_magnitude<To, R>(x < 0 ? 0 - uint64_t(x) : uint64_t(x), x < 0);
}
template <typename To, Rounding R>
static inline uint64_t from_integer(uint64_t x) { return from_magnitude<To, R>(x, false); }

// float -> binary16, to nearest even: the two cases are computed and one is taken, which a compiler can vectorize.
static inline uint16_t half_of(float x)
{
    const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Adding 0.5 leaves a subnormal's code in the last bits, rounded by the adder.
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
    uint32_t code = magnitude < (113u << 23) ? subnormal : normal;
    code = magnitude >= 0x477ff000 ? 0x7c00 : code;
    code |= bits >> 16 & 0x8000;
    return uint16_t(magnitude > 0x7f800000 ? 0x7fff : code);
}

// binary16 -> float, exactly.
static inline float float_of_half(uint16_t x)
{
    const uint32_t magnitude = x & 0x7fff;
    const uint32_t scaled = bits_of(float_of(magnitude << 13) * 0x1p112f);
    const uint32_t bits = magnitude > 0x7c00 ? 0x7fffffff : magnitude == 0x7c00 ? 0x7f800000 : scaled;
    return float_of(bits | uint32_t(x & 0x8000) << 16);
}

// float -> bfloat16, to nearest even, and back.
static inline uint16_t bfloat_of(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t code = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : code);
}
static inline float float_of_bfloat(uint16_t x) { return float_of(uint32_t(x) << 16); }

static inline uint16_t low(uint32_t pair) { return uint16_t(pair); }
static inline uint16_t high(uint32_t pair) { return uint16_t(pair >> 16); }
static inline uint32_t pair_of(uint16_t low, uint16_t high) { return low | uint32_t(high) << 16; }

}  // namespace kg
