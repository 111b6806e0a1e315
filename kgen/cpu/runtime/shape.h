// What a shape sees: a statement of kernels in which registers and numbers are operands. It is compiled once, for all
// kernels that have a statement like it (translate/listing.py); listed.h runs lists of them.
#pragma once
#include "kernel.h"

namespace kg {

// What lives from place to place, a row for each register; how many there are, the list knows.
union LaneRows {
    uint64_t u64[1 << 20][32];
    double f64[1 << 20][32];
    uint32_t u32[1 << 20][32];
    float f32[1 << 20][32];
    uint16_t u16[1 << 20][32];
    uint8_t u8[1 << 20][32];
    bool flag[1 << 20][32];
};

struct Listed {
    Warp* w;
    LaneRows* rows;
    uint8_t* values;     // registers within a region, a row for each
    uint32_t lanes;      // that run a statement
    bool found;          // of a cut that polls: whether what it waits for has come
    uint32_t group;      // lanes of a cut
    uint32_t masks[32];  // what each of them says who must be there
};

// A shape reads its operands, one number each or two, and returns what follows them.
typedef const int32_t* Shape(Listed*, const int32_t* o_);

template <class T> static inline T* row(Listed* s, int32_t at) { return (T*)(s->values + at); }
static inline uint64_t two(const int32_t* o_) { return (uint64_t)(uint32_t)o_[1] << 32 | (uint32_t)o_[0]; }

}  // namespace kg

#define KG_SHAPE(name) extern "C" const int32_t* name(kg::Listed* s_, const int32_t* o_)
#define KG_OF_LANES kg::Warp* const w = s_->w; kg::LaneRows* const f = s_->rows; (void)w; (void)f;
#define KG_OF_A_WARP \
    kg::Warp* const w = s_->w; const uint32_t group = s_->group; kg::LaneRows* const f = s_->rows; bool& found = s_->found;

// One lane after the other; and for what compilers can make vectors of, a second loop, which is for a whole warp.
#define KG_EACH_LANE(...) KG_LANES(s_->lanes) { const int l = __builtin_ctz(m); __VA_ARGS__ }
#define KG_ALL_LANES(...) \
    if (s_->lanes == ~0u) { \
        _Pragma("GCC ivdep") for (int l = 0; l < 32; ++l) { __VA_ARGS__ } \
    } else { \
        KG_EACH_LANE(__VA_ARGS__) \
    }
