// Clocks: what a thread knows of another one's past.
//
// A clock has a row for each block, and rows are shared until they change: most of what threads know of other blocks is
// the same, and a grid of 100000 threads that each held its own times would take more memory than there is.
#pragma once
#include "shadow.h"

namespace kg {

struct Row {
    uint32_t uses, times[1];  // of the ids of a block
};
struct Rows {
    uint32_t uses;
    Row* of[1];  // of each block; and as many more, of times up to which reads are over
};

static void drop(Row* row)
{
    if (row && --row->uses == 0) free(row);
}
static void drop(const Checker* c, Clock& clock)
{
    if (clock && --clock->uses == 0) {
        for (uint32_t i = 0; i < 2 * c->blocks; ++i) drop(clock->of[i]);
        free(clock);
    }
    clock = nullptr;
}
static void share(const Checker* c, Clock& into, Clock from)
{
    if (from) ++from->uses;
    drop(c, into);
    into = from;
}

// A clock, and a row of it, that nobody else has.
static void own(const Checker* c, Clock& clock)
{
    if (clock && clock->uses == 1) return;
    Clock made = (Clock)room(sizeof(Rows) + 2 * c->blocks * sizeof(Row*));
    made->uses = 1;
    for (uint32_t i = 0; clock && i < 2 * c->blocks; ++i)
        if ((made->of[i] = clock->of[i])) ++made->of[i]->uses;
    drop(c, clock);
    clock = made;
}
static uint32_t* own_row(const Checker* c, Clock& clock, uint32_t i)
{
    own(c, clock);
    Row*& row = clock->of[i];
    if (row && row->uses == 1) return row->times;
    const size_t size = sizeof(Row) + c->per_block * sizeof(uint32_t);
    Row* made = (Row*)room(size);
    if (row) memcpy(made, row, size);
    made->uses = 1;
    drop(row);
    row = made;
    return made->times;
}
static void join_row(const Checker* c, Clock& into, uint32_t i, Row* from)
{
    Row* held = into ? into->of[i] : nullptr;
    if (!from || held == from) return;
    bool more = !held, less = false;  // in `from` than in `held`
    for (uint32_t u = 0; held && u < c->per_block; ++u)
        more |= from->times[u] > held->times[u], less |= from->times[u] < held->times[u];
    if (!more) return;
    if (less) {
        uint32_t* times = own_row(c, into, i);
        for (uint32_t u = 0; u < c->per_block; ++u) times[u] = times[u] > from->times[u] ? times[u] : from->times[u];
    } else {
        own(c, into);
        ++from->uses;
        drop(into->of[i]);
        into->of[i] = from;
    }
}
static void join(const Checker* c, Clock& into, Clock from)
{
    if (!into) share(c, into, from);
    for (uint32_t i = 0; into != from && from && i < 2 * c->blocks; ++i) join_row(c, into, i, from->of[i]);
}
static void join_known(const Checker* c, Clock& into, const CheckWarp* w, uint32_t lanes)  // mostly one clock
{
    Clock last = nullptr;
    KG_LANES(lanes) {
        const Clock known = w->threads[__builtin_ctz(m)].known;
        if (known != last) join(c, into, known);
        last = known;
    }
}

static void tick(Checker* c, CheckWarp* w) { w->now = ++c->time; }

static Past past_of(const CheckWarp* w, uint32_t lane)
{
    const CheckThread& t = w->threads[lane];
    return {t.known, t.floor, t.warp_floor, w->now};
}
// What a lane knows or knew of its block, itself included; and all that lanes know.
static void gather_own(const Checker* c, const CheckWarp* w, uint32_t lane, Clock& into, const Past& past)
{
    const uint32_t first = w->id % c->per_block;
    uint32_t* times = own_row(c, into, w->id / c->per_block);
    const auto raise = [&](uint32_t from, uint32_t to, uint32_t time) {
        for (uint32_t u = from; u < to; ++u) times[u] = times[u] > time ? times[u] : time;
    };
    raise(0, c->stores, past.floor);
    raise(first, first + 32, past.warp_floor);
    raise(first + lane, first + lane + 1, past.now);
}
static void gather(const Checker* c, const CheckWarp* w, uint32_t lanes, Clock& into)
{
    join_known(c, into, w, lanes);
    KG_LANES(lanes) gather_own(c, w, (uint32_t)__builtin_ctz(m), into, past_of(w, (uint32_t)__builtin_ctz(m)));
}
// what it knew at its last fence
static void gather_released(const Checker* c, const CheckWarp* w, uint32_t lane, Clock& into)
{
    const Past& past = w->threads[lane].released;
    join(c, into, past.known);
    if (past.now) gather_own(c, w, lane, into, past);
}
// that all reads a lane knows of are over
static void gather_reads(const Checker* c, const CheckWarp* w, uint32_t lane, Clock& into)
{
    Clock all = nullptr;
    gather(c, w, 1u << lane, all);
    for (uint32_t i = 0; i < 2 * c->blocks; ++i) join_row(c, into, c->blocks + i % c->blocks, all->of[i]);
    drop(c, all);
}

static bool tells(const Checker* c, Clock clock, uint32_t half, uint32_t u, uint32_t time)
{
    const Row* row = clock ? clock->of[half * c->blocks + u / c->per_block] : nullptr;
    return row && time <= row->times[u % c->per_block];
}
static bool knows(const Checker* c, const CheckWarp* w, uint32_t lane, uint32_t u, uint32_t time)
{
    const CheckThread& t = w->threads[lane];
    const uint32_t self = w->id + lane;
    if (u == self || time == 0) return true;
    if (time <= t.warp_floor && u / 32 == self / 32) return true;
    if (time <= t.floor && u / c->per_block == self / c->per_block && u % c->per_block < c->stores) return true;
    return tells(c, t.known, 0, u, time);
}
static bool knows_read(const Checker* c, const CheckWarp* w, uint32_t lane, uint32_t u, uint32_t time)
{
    return knows(c, w, lane, u, time) || tells(c, w->threads[lane].known, 1, u, time);
}

}  // namespace kg
