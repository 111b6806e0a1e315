// The places of a warp's lanes: who waits where, and who goes on.
#pragma once
#include "warp.h"

namespace kg {

#define KG_APART __attribute__((noinline))

// The function of one place: what its lanes `go` through; returns where they go next.
#define KG_PLACE(frame, number) \
    __attribute__((visibility("hidden"))) int frame##_##number(kg::Warp* w, frame* f, uint32_t& go)

enum { OTHERS = -1 };  // in place of a place: whoever can go on

// Who waits where. A place is ready when lanes came to it since it was last looked at.
struct Waiting {
    uint32_t* at;
    uint64_t* ready;
    int count, start, polled;

    void arrive(int place, uint32_t lanes)
    {
        at[place] |= lanes;
        if (lanes) ready[place >> 6] |= 1ull << (place & 63);
    }
    void recheck()
    {
        for (int place = 0; place < count; ++place)
            if (at[place]) ready[place >> 6] |= 1ull << (place & 63);
    }
    bool any() const
    {
        for (int word = 0; word < (count + 63) / 64; ++word)
            if (ready[word]) return true;
        return false;
    }
    // The lanes that take a way out of a region; x[count] of them end.
    KG_APART int leave(Warp* w, uint32_t& go, const uint32_t* x, const int* to, int ways)
    {
        for (int i = 0; i < ways; ++i)
            if (x[i] == go) return to[i];
        if (x[ways]) w->live &= ~x[ways], recheck();
        for (int i = 0; i < ways; ++i) arrive(to[i], x[i]);
        return OTHERS;
    }
    // Whether all lanes that live are here; if not, they wait.
    bool all(Warp* w, int place, uint32_t& go)
    {
        go |= at[place];
        at[place] = go == w->live ? 0 : go;
        return go == w->live;
    }
    // The lanes here whose masks are the same and all of whose living lanes are here; 0 where nobody is complete.
    template <class M> KG_APART uint32_t complete(Warp* w, int place, uint32_t go, M mask)
    {
        go |= at[place];
        at[place] = 0;
        for (uint32_t rest = go; rest;) {
            const uint32_t wanted = mask[__builtin_ctz(rest)];
            uint32_t group = 0;
            KG_LANES(rest) if (mask[__builtin_ctz(m)] == wanted) group |= m & -m;
            if ((wanted & w->live & ~group) == 0) {
                arrive(place, go & ~group);
                return group;
            }
            rest &= ~group;
        }
        at[place] = go;
        return 0;
    }
    // What these lanes wait for has not come: let others go, of this warp or, after a round of it, of other ones.
    KG_APART int give_way(Warp* w, uint32_t go, int place, int site)
    {
        if (any() && polled < place) {
            arrive(place, go);
            polled = place;
            start = place + 1;
            return OTHERS;
        }
        polled = OTHERS;
        w->calls->yield(w, site);
        return place;
    }
    int pick(uint32_t& go)
    {
        for (int round = 0; round < 2; ++round, start = 0)
            for (int word = start >> 6; word < (count + 63) / 64; ++word) {
                uint64_t found = ready[word];
                if (word == start >> 6) found &= ~0ull << (start & 63);
                for (; found; found &= found - 1) {
                    const int place = 64 * word + __builtin_ctzll(found);
                    ready[word] &= ~(1ull << (place & 63));
                    if (!at[place]) continue;  // they have gone on with others
                    go = at[place];
                    at[place] = 0;
                    start = 0;
                    return place;
                }
            }
        return OTHERS;
    }
};

// With these, what lives from place to place: ROWS of 32 bits of each lane, and ROOM bytes of local memory.
template <int PLACES, int ROWS, int ROOM> struct Frame : Waiting {
    enum { LOCAL = ROOM };
    uint32_t at_[PLACES] = {};
    uint64_t ready_[(PLACES + 63) / 64] = {};
    union {
        uint64_t u64[ROWS / 2 + 1][32];
        double f64[ROWS / 2 + 1][32];
        uint32_t u32[ROWS + 1][32];
        float f32[ROWS + 1][32];
        uint16_t u16[2 * ROWS + 1][32];
        uint8_t u8[4 * ROWS + 1][32];
        bool flag[4 * ROWS + 1][32];
    };
    alignas(16) uint8_t local_[32 * ROOM + 1];
    Frame() : Waiting{at_, ready_, PLACES, 0, OTHERS} {}
};

// From place to place until every lane has ended.
template <class F> static inline void run(Warp* w, F* f, int (*const* steps)(Warp*, F*, uint32_t&), const int* sites)
{
    uint32_t go = w->live;
    int place = 0;
    for (;;) {
        w->place = place;
        place = steps[place](w, f, go);
        if (place == OTHERS) {
            if (!w->live) return;
            place = f->pick(go);
            if (place == OTHERS) w->calls->stuck(w, f->at, sites, f->count);
        }
    }
}

}  // namespace kg
