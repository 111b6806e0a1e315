// Fragments of mma.sync: how the numbers of a warp's tile lie in registers, and the fixed point that they are added in.
#pragma once

#include "round.h"

namespace kg {

typedef int32_t Columns __attribute__((vector_size(32)));  // one number for each of 8 columns, or of 8 lanes
typedef uint32_t Codes __attribute__((vector_size(32)));
typedef float Reals __attribute__((vector_size(32)));

constexpr int BELOW_THE_LARGEST = 25;  // bits that are kept of a term
constexpr int32_t NOTHING = -4096;     // the exponent of a zero

// How numbers lie in 32-bit registers.
template <typename Type, int PACKED, int SHIFT = 0>
struct Packed {
    using type = Type;
    static constexpr int taken = PACKED == 1 ? 1 : 2;  // at a time: of 8-bit floats, one half of the register
    template <typename Word>
    static Word code(Word word, int i)
    {
        return PACKED == 1 ? word >> SHIFT : (word >> (32 / PACKED * i)) & ((1u << (32 / PACKED % 32)) - 1);
    }
    static float value(uint32_t code)
    {
        const uint32_t magnitude = code & ((1u << Type::sign) - 1);
        const bool is_nan = magnitude > Type::largest && (Type::infinity == Type::nan || magnitude > Type::infinity);
        if (is_nan) return __builtin_nanf("");
        if (magnitude > Type::largest) return code >> Type::sign & 1 ? -__builtin_inff() : __builtin_inff();
        // Shifted to where a float has its fields; the product mends the exponent, of subnormals too.
        const float scale = Type::bias == 127 ? 1.0f : double_of(uint64_t(1023 + 127 - Type::bias) << 52);
        return float_of(magnitude << (23 - Type::mantissa) | code >> Type::sign << 31) * scale;
    }
};
namespace packed {
using f16 = Packed<f16, 2>;
using bf16 = Packed<bf16, 2>;
using tf32 = Packed<tf32, 1, 13>;
using e4m3 = Packed<e4m3, 4>;
using e5m2 = Packed<e5m2, 4>;
}  // namespace packed

// A float's parts: significand * 2^(exponent - POINT). Returns all bits where it is infinite or NaN.
template <typename Type, int POINT>
static inline Columns parts(Codes code, Columns& significand, Columns& exponent)
{
    const Columns magnitude = Columns(code & ((1u << Type::sign) - 1));
    const Columns field = magnitude >> Type::mantissa;
    const Columns normal = field != 0;
    const Columns fraction = magnitude & ((1 << Type::mantissa) - 1);
    const Columns whole = (fraction | (normal & (1 << Type::mantissa))) << (POINT - Type::mantissa);
    const Columns negative = -Columns(code >> Type::sign & 1);
    significand = (whole ^ negative) - negative;
    exponent = field + 1 + normal - Type::bias;
    exponent = (exponent & (whole != 0)) | (NOTHING & (whole == 0));
    return magnitude > int32_t(Type::largest);
}

// A product's factors, 16 x K and K x 8. In which order k runs does not matter, so it is that of the registers.
template <int K>
struct Factors {
    int32_t a[16][K], a_exponent[16][K];
    Columns b[K], b_exponent[K];
};

// From fragments: with g = lane / 4 and t = lane % 4, register r of A holds row g + 8 (r % 2), of B column g, and both
// hold `packed` elements of k each, in blocks of four lanes. Returns whether something is infinite or NaN.
template <typename A, typename B, int K>
static inline Columns gather(Factors<K>& to, const uint32_t* const* a, const uint32_t* const* b, int first)
{
    Columns special = {}, significand, exponent;
    Codes words;
    for (int block = 0; block < K / (4 * A::taken); ++block) {
        for (int i = 0; i < A::taken; ++i) {
            const int k = (block * A::taken + i) * 4;
            for (int lane = 0; lane < 32; lane += 8) {
                for (int half = 0; half < 2; ++half) {
                    memcpy(&words, a[2 * block + half] + lane, sizeof words);
                    special |= parts<typename A::type, 10>(A::code(words, first + i), significand, exponent);
                    const int row = lane / 4 + 8 * half;
                    memcpy(&to.a[row][k], &significand, 16);
                    memcpy(&to.a[row + 1][k], (const char*)&significand + 16, 16);
                    memcpy(&to.a_exponent[row][k], &exponent, 16);
                    memcpy(&to.a_exponent[row + 1][k], (const char*)&exponent + 16, 16);
                }
                memcpy(&words, b[block] + lane, sizeof words);
                special |= parts<typename B::type, 10>(B::code(words, first + i), significand, exponent);
                for (int j = 0; j < 8; ++j) {
                    to.b[k + j % 4][(lane + j) / 4] = significand[j];
                    to.b_exponent[k + j % 4][(lane + j) / 4] = exponent[j];
                }
            }
        }
    }
    return special;
}

static inline Columns larger(Columns a, Columns b) { const Columns m = a > b; return (a & m) | (b & ~m); }

// x without its last bits, cut off toward zero: 31 bits and more leave nothing.
static inline Columns aligned(Columns x, Columns drop)
{
    const Columns sign = x >> 31;
    return (((x ^ sign) - sign) >> ((drop | (drop > 31)) & 31) ^ sign) - sign;
}

static inline bool any(Columns mask)
{
    int64_t words[4];
    memcpy(words, &mask, sizeof words);
    return words[0] | words[1] | words[2] | words[3];
}

// How a sum becomes the accumulator's type: float, cut off, or binary16, to nearest even. A lane's i-th
// sum is that of row g + 8 (i / 2), column 2 t + i % 2; of binary16 two share a register.
using Sums = float[16][8];
struct FloatSums {
    static Reals rounded(Reals cut_off, Columns) { return cut_off; }
    static float rounded(double x)
    {
        if (__builtin_fabs(x) < 0x1p-126) x = __builtin_trunc(x * 0x1p149) * 0x1p-149;
        return float(double_of(bits_of(x) & ~uint64_t(0x1fffffff)));
    }
    static float added(float x, float y) { return x + y; }
    static float read(const uint32_t* const* c, int i, int lane) { return float_of(c[i][lane]); }
    static void write(uint32_t* const* d, int i, int lane, float x) { d[i][lane] = x != x ? 0x7fffffff : bits_of(x); }
};
struct HalfSums {
    // What was cut off goes into the last bit, so that rounding again sees it.
    static Reals rounded(Reals cut_off, Columns inexact)
    {
        const Reals odd = Reals(Columns(cut_off) | (inexact & 1));
        Reals result = {};
        for (int j = 0; j < 8; ++j) result[j] = float_of_half(half_of(odd[j]));
        return result;
    }
    static float rounded(double x)
    {
        return float_of_half(uint16_t(narrowed<f64, f16, rn, false, uint64_t>(bits_of(x))));
    }
    static float added(float x, float y) { return float_of_half(half_of(x + y)); }
    static float read(const uint32_t* const* c, int i, int lane)
    {
        return float_of_half(uint16_t(c[i / 2][lane] >> i % 2 * 16));
    }
    static void write(uint32_t* const* d, int i, int lane, float x)  // i = 0, 1, ..
    {
        uint32_t& pair = d[i / 2][lane];
        pair = i % 2 ? pair_of(low(pair), half_of(x)) : half_of(x);
    }
};
template <typename Kind>
static inline void read(Sums& sums, const uint32_t* const* c)
{
    for (int i = 0; i < 4; ++i)
        for (int lane = 0; lane < 32; ++lane) sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = Kind::read(c, i, lane);
}
template <typename Kind>
static inline void write(uint32_t* const* d, const Sums& sums)
{
    for (int i = 0; i < 4; ++i)
        for (int lane = 0; lane < 32; ++lane) Kind::write(d, i, lane, sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

}  // namespace kg
