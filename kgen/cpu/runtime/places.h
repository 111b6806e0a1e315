// The places of a warp's lanes: who waits where, and who goes on.
#pragma once
#include "warp.h"

namespace kg {

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
    int leave(Warp* w, uint32_t& go, const uint32_t* x, const int* to, int ways)
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
    uint32_t complete(Warp* w, int place, uint32_t go, const uint32_t* mask)
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
    int give_way(Warp* w, uint32_t go, int place, int site)
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

}  // namespace kg
