// Clocks: what a thread knows of another one's past.
#pragma once
#include "shadow.h"

namespace kg {

Clock new_clock(Checker* c) { return (Clock)calloc(2 * c->threads, sizeof(uint32_t)); }
void clear_clock(Checker* c, Clock clock) { memset(clock, 0, 2 * c->threads * sizeof(uint32_t)); }

struct Span { uint32_t from, to; };
static Span span(Checker* c, CheckWarp* w)  // whom this warp can know of
{
    const uint32_t first = w->id / c->reach * c->reach;
    return {first, first + c->reach};
}
static void join(Checker* c, CheckWarp* w, Clock& into, Clock from)
{
    if (!from) return;
    if (!into) into = new_clock(c);
    const Span s = span(c, w);
    for (uint32_t half = 0; half <= c->threads; half += c->threads)
        for (uint32_t u = half + s.from; u < half + s.to; ++u) into[u] = into[u] > from[u] ? into[u] : from[u];
}
static void raise_(Clock clock, uint32_t from, uint32_t to, uint32_t time)
{
    for (uint32_t u = from; u < to; ++u) clock[u] = clock[u] > time ? clock[u] : time;
}
static void gather(Checker* c, CheckWarp* w, int lane, Clock& into)  // all that a lane knows, its own past included
{
    CheckThread& t = w->threads[lane];
    if (!into) into = new_clock(c);
    join(c, w, into, t.known);
    const uint32_t first = w->id / c->per_block * c->per_block;
    raise_(into, first, first + c->stores, t.floor);
    raise_(into, w->id, w->id + 32, t.warp_floor);
    into[w->id + (uint32_t)lane] = w->now;
}
static void gather_reads(Checker* c, CheckWarp* w, int lane, Clock into)  // that all reads a lane knows of are over
{
    Clock all = nullptr;
    gather(c, w, lane, all);
    const Span s = span(c, w);
    for (uint32_t u = s.from; u < s.to; ++u) {
        const uint32_t time = all[u] > all[c->threads + u] ? all[u] : all[c->threads + u];
        if (into[c->threads + u] < time) into[c->threads + u] = time;
    }
    free(all);
}
static void tick(Checker* c, CheckWarp* w) { w->now = ++c->time; }

static bool knows(const Checker* c, const CheckWarp* w, uint32_t lane, uint32_t u, uint32_t time)
{
    const CheckThread& t = w->threads[lane];
    const uint32_t self = w->id + lane;
    if (u == self || time == 0) return true;
    if (time <= t.warp_floor && u / 32 == self / 32) return true;
    if (time <= t.floor && u / c->per_block == self / c->per_block && u % c->per_block < c->stores) return true;
    return t.known && time <= t.known[u];
}
static bool knows_read(const Checker* c, const CheckWarp* w, uint32_t lane, uint32_t u, uint32_t time)
{
    const Clock known = w->threads[lane].known;
    return knows(c, w, lane, u, time) || (known && time <= known[c->threads + u]);
}

}  // namespace kg
