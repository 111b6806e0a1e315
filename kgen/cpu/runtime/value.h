// Plain C++ for what C++ has no operator for: bits and values, saturation, bit fields, IEEE's minimum and maximum.
#pragma once
#include <stdint.h>
#include <string.h>

namespace kg {

using u8 = uint8_t; using u16 = uint16_t; using u32 = uint32_t; using u64 = uint64_t;
using s8 = int8_t; using s16 = int16_t; using s32 = int32_t; using s64 = int64_t;

static inline uint32_t bits_of(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
static inline uint64_t bits_of(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
static inline float float_of(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }
static inline double double_of(uint64_t b) { double x; memcpy(&x, &b, 8); return x; }

// .ftz: a subnormal becomes zero of its sign. .sat: into [0, 1], and NaN becomes 0.
static inline float flushed(float x) { return bits_of(x) & 0x7f800000 ? x : float_of(bits_of(x) & 0x80000000); }
static inline float saturated(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline double saturated(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }

// Integers.

template <class T> struct Limits {
    static constexpr bool is_signed = T(-1) < T(0);
    static constexpr T high = is_signed ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(-1);
    static constexpr T low = is_signed ? T(-high - 1) : T(0);
};
// From one integer to another, clamped to what it holds.
template <class To, class From> static inline To clamped(From x)
{
    if (x < From(0) && !Limits<To>::is_signed) return To(0);
    if (x < From(0)) return int64_t(x) < int64_t(Limits<To>::low) ? Limits<To>::low : To(x);
    return uint64_t(x) > uint64_t(Limits<To>::high) ? Limits<To>::high : To(x);
}
// The hardware divides by zero without a trap: the quotient is all ones.
template <class T> static inline T divide(T a, T b)
{
    if (b == 0) return T(-1);
    if (Limits<T>::is_signed && b == T(-1)) return T(0) - a;
    return a / b;
}
static inline uint32_t funnel(uint32_t low, uint32_t high, uint32_t right)  // right <= 32
{
    return (uint32_t)((((uint64_t)high << 32) | low) >> right);
}
template <class T> static inline T reverse_bits(T x)
{
    T y = 0;
    for (unsigned i = 0; i < 8 * sizeof x; ++i) y |= ((x >> i) & 1) << (8 * sizeof x - 1 - i);
    return y;
}
template <class T> static inline uint32_t highest_bit(T a)
{
    uint64_t x = Limits<T>::is_signed ? (uint64_t)(int64_t)(a < 0 ? ~a : a) : (uint64_t)a;
    return x ? 63 - __builtin_clzll(x) : 0xffffffffu;
}
template <class T> static inline uint32_t highest_bit_shift(T a)
{
    uint32_t at = highest_bit(a);
    return at == 0xffffffffu ? at : (uint32_t)(8 * sizeof a - 1) - at;
}
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t x = 0;
    for (int i = 0; i < 8; ++i)
        if (table >> i & 1) x |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return x;
}

enum Extreme { min, max };

// Floats.

template <class T> static inline T minimum(T a, T b)  // the other one where one is a NaN; -0 < +0
{
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && __builtin_signbit(a)) ? a : b;
}
template <class T> static inline T maximum(T a, T b)
{
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !__builtin_signbit(a)) ? a : b;
}
static inline float minimum_nan(float a, float b) { return a != a || b != b ? float_of(0x7fffffffu) : minimum(a, b); }
static inline float maximum_nan(float a, float b) { return a != a || b != b ? float_of(0x7fffffffu) : maximum(a, b); }

}  // namespace kg
