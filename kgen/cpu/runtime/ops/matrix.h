// ldmatrix, stmatrix, movmatrix: 8 x 8 tiles of 16-bit elements between rows in shared memory and a warp's registers.
//
// A lane holds elements (g, 2t) and (g, 2t + 1) of a tile, g = lane / 4, t = lane % 4; transposed, (2t, g) and (2t + 1,
// g).
#pragma once

#include <stdint.h>
#include <string.h>

namespace kg {

template <bool TRANSPOSED>
static inline void load_tiles(uint32_t* const* d, const uint8_t* const* row, int tiles)
{
    for (int tile = 0; tile < tiles; ++tile) {
        uint16_t elements[8][8];
        for (int i = 0; i < 8; ++i) memcpy(elements[i], row[8 * tile + i], 16);
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = lane % 4 * 2;
            const uint32_t low = TRANSPOSED ? elements[t][g] : elements[g][t];
            const uint32_t high = TRANSPOSED ? elements[t + 1][g] : elements[g][t + 1];
            d[tile][lane] = low | high << 16;
        }
    }
}

template <bool TRANSPOSED>
static inline void store_tiles(uint8_t* const* row, const uint32_t* const* s, int tiles)
{
    for (int tile = 0; tile < tiles; ++tile) {
        uint16_t elements[8][8];
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = lane % 4 * 2;
            (TRANSPOSED ? elements[t][g] : elements[g][t]) = uint16_t(s[tile][lane]);
            (TRANSPOSED ? elements[t + 1][g] : elements[g][t + 1]) = uint16_t(s[tile][lane] >> 16);
        }
        for (int i = 0; i < 8; ++i) memcpy(row[8 * tile + i], elements[i], 16);
    }
}

static inline void transposed_tile(uint32_t* const* d, const uint32_t* const* a)
{
    uint8_t elements[8][16], *row[8];
    for (int i = 0; i < 8; ++i) row[i] = elements[i];
    store_tiles<false>(row, a, 1);
    load_tiles<true>(d, row, 1);
}

}  // namespace kg
