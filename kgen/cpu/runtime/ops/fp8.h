// cvt of 8-bit floats, e4m3 and e5m2, which always come in pairs: the first operand is the upper one.
#pragma once

#include "convert.h"

namespace kg {

// Too large, or infinite: the largest number. NaN: 0x7f.
#define KG_FP8(name, Type)                                                                                            \
    static inline uint16_t cvt_rn_satfinite_##name##x2_f32(float a, float b)                                          \
    {                                                                                                                 \
        return uint16_t(narrow<Type, rn, true>(a) << 8 | narrow<Type, rn, true>(b));                                  \
    }                                                                                                                 \
    static inline uint16_t cvt_rn_satfinite_relu_##name##x2_f32(float a, float b)                                     \
    {                                                                                                                 \
        return uint16_t(rectified<8>(narrow<Type, rn, true>(a)) << 8 | rectified<8>(narrow<Type, rn, true>(b)));      \
    }                                                                                                                 \
    static inline uint16_t cvt_rn_satfinite_##name##x2_f16x2(uint32_t a)                                              \
    {                                                                                                                 \
        return cvt_rn_satfinite_##name##x2_f32(float_of_half(high(a)), float_of_half(low(a)));                        \
    }                                                                                                                 \
    static inline uint16_t cvt_rn_satfinite_relu_##name##x2_f16x2(uint32_t a)                                         \
    {                                                                                                                 \
        return cvt_rn_satfinite_relu_##name##x2_f32(float_of_half(high(a)), float_of_half(low(a)));                   \
    }                                                                                                                 \
    static inline uint32_t cvt_rn_f16x2_##name##x2(uint16_t a)                                                        \
    {                                                                                                                 \
        return pair_of(half_of_##name(uint8_t(a)), half_of_##name(uint8_t(a >> 8)));                                  \
    }                                                                                                                 \
    static inline uint32_t cvt_rn_relu_f16x2_##name##x2(uint16_t a)                                                   \
    {                                                                                                                 \
        const uint32_t pair = cvt_rn_f16x2_##name##x2(a);                                                             \
        return pair_of(uint16_t(rectified<16>(low(pair))), uint16_t(rectified<16>(high(pair))));                      \
    }

// Both fit into a half: e5m2 is its upper byte, e4m3 has the exponent counted from another bias.
static inline uint16_t half_of_e5m2(uint8_t code) { return uint16_t((code & 0x7f) > 0x7c ? 0x7fff : code << 8); }
static inline uint16_t half_of_e4m3(uint8_t code)
{
    const uint16_t sign = uint16_t((code & 0x80) << 8), magnitude = code & 0x7f;
    if (magnitude == 0x7f) return 0x7fff;
    if (magnitude >= 8) return uint16_t(sign | ((magnitude << 7) + (8 << 10)));
    return uint16_t(sign | half_of(float(magnitude) * 0x1p-9f));
}

KG_FP8(e4m3, E4M3)
KG_FP8(e5m2, E5M2)
#undef KG_FP8

}  // namespace kg
