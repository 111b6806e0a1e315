// What warps tell the checks, and the life of a launch under them.
#pragma once
#include "cells.h"
#include "machine.h"

namespace kg {

static bool within(const Area* areas, uint32_t count, uint64_t at, uint32_t size, const Area** found)
{
    for (uint32_t i = 0; i < count; ++i)
        if (at >= areas[i].base && at + size <= areas[i].base + areas[i].size) {
            *found = &areas[i];
            return true;
        }
    return false;
}

// An access by a lane of a warp; one in shared memory is in that of the block `owner`.
static uint8_t* check_access(
    Runner* r, const Block* owner, uint64_t address, uint32_t size, uint32_t what, int lane, int site)
{
    Checker* c = current->checker;
    Warp* w = &r->warp;
    CheckWarp* k = r->check;
    uint32_t space = what & 0xf00;
    Access a{c, k, r->block->index, lane, site, what & 0xff, address, true, (const uint8_t*)address, 4};
    if (space == GENERIC) {
        if (address - (uint64_t)w->local < 32ull * w->local_size) space = LOCAL;
        else if (address - (uint64_t)w->args < 4096) return (uint8_t*)address;
        else space = GLOBAL;
    }
    if (space == SHARED) address = (uint32_t)address;
    const char* names[] = {"global address", "shared memory at", "local address"};
    const char* verb = what & WRITE ? "writes" : "reads";
    const auto out_of_bounds = [&](const char* where) {
        complain(a, once(5, site, 0), "bounds", "%s %u bytes %s", verb, size, where);
        return c->sink;
    };
    if (size & (size - 1) ? false : address % size)
        complain(a, once(4, site, 0), "misaligned", "%s %u bytes at %s %llu", verb, size, names[space >> 8],
                 (unsigned long long)address);
    if (space == LOCAL) {
        const uint64_t base = (uint64_t)(w->local + (uint64_t)lane * w->local_size);
        return address - base + size <= w->local_size ? (uint8_t*)address : out_of_bounds("beyond its local memory");
    }
    const Area* area = nullptr;
    if (space != GLOBAL) {
        if (!within(c->input->areas, c->input->area_count, address, size, &area)) {
            char where[64];
            snprintf(where, sizeof where, "at shared memory %llu, which no variable has", (unsigned long long)address);
            return out_of_bounds(where);
        }
        if (what & ASYNC) tick(c, k);
        a.address = address, a.global = false, a.data = owner->memory + address;
        if (a.what & (ATOMIC | RELAXED | ACQUIRE | RELEASE)) strong_access(a, (uint64_t)a.data);
        if (!(what & PLACE)) touch_range(a, owner->shadow, address, size);
        return owner->memory + address;
    }
    if (!within(c->input->buffers, c->input->buffer_count, address, size, &area))
        return out_of_bounds("at a global address beyond every argument");
    if (what & WRITE && !area->writable) {
        complain(a, once(6, site, 0), "input", "writes to an argument that is only to be read");
        return c->sink;
    }
    if (!area->writable || what & PLACE) return (uint8_t*)address;
    Shadow* s = c->buffers[area - c->input->buffers];
    if (a.what & (ATOMIC | RELAXED | ACQUIRE | RELEASE)) strong_access(a, address);
    a.address = address - area->base;
    touch_range(a, s, address - s->base, size);
    return (uint8_t*)address;
}

static void sync(Warp* w, uint32_t lanes, int what, uint64_t address, int site)
{
    Checker* c = current->checker;
    CheckWarp* k = runner_of(w)->check;
    const uint32_t lane = (uint32_t)__builtin_ctz(lanes);
    CheckThread& t = k->threads[lane];
    if (what == WARP_SYNC) {
        bool clocks = lanes != w->live;
        KG_LANES(lanes) clocks |= k->threads[__builtin_ctz(m)].known != nullptr;
        if (clocks) {
            Clock all = nullptr;
            gather(c, k, lanes, all);
            KG_LANES(lanes) share(c, k->threads[__builtin_ctz(m)].known, all);
            drop(c, all);
        }
        if (lanes == w->live) KG_LANES(lanes) k->threads[__builtin_ctz(m)].warp_floor = k->now;
        tick(c, k);
    } else if (what == FENCE) {
        join(c, t.known, t.pending);
        drop(c, t.pending), drop(c, t.released.known);
        t.released = past_of(k, lane);
        if (t.known) ++t.known->uses;
        tick(c, k);
    } else if (what == ARRIVE) {
        gather(c, k, lanes, object(c, address).phase);
        tick(c, k);
    } else if (what == WAITED) {
        join(c, t.known, object(c, address).past);
    } else if (what == INIT) {
        Object& o = object(c, address);
        drop(c, o.past), drop(c, o.phase);
    } else if (what == PHASE) {
        Object& o = object(c, address);
        join(c, o.past, o.phase);
        drop(c, o.phase);
    } else if (what == ASTRAY) {
        say(c, once(7, site, 0),
            "divergence %d %u %u lane %u takes part with a lane or a mask that does not: %08llx", site,
            runner_of(w)->block->index, k->id % c->per_block / 32, lane, (unsigned long long)address);
    } else if (what == ASYNC_DONE) {
        Object& o = object(c, address);
        own_row(c, o.phase, k->id / c->per_block)[c->stores] = k->now;
        gather_reads(c, k, lane, o.phase);
        tick(c, k);
    }
}

static void async(
    Warp* w, uint8_t* to, uint64_t address, const uint8_t* from, uint32_t size, uint32_t taken, int lane, int site)
{
    CheckWarp* k = runner_of(w)->check;
    if (to == current->checker->sink) return;
    Flights& f = k->flights[lane];
    Flight one{to, {}, address, size, f.group, (uint32_t)site};
    for (uint32_t i = 0; i < taken && i < size; ++i) one.data[i] = from[i];
    append(f.items, f.count, f.room, one);
    memset(to, 0xff, size);
    mark_flight(k->shared, (uint64_t)(to - w->shared), size, true);
}

static void async_group(Warp* w, int lane, bool wait, uint32_t groups)
{
    CheckWarp* k = runner_of(w)->check;
    Flights& f = k->flights[lane];
    if (!wait) {
        ++f.group;
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f.count; ++i) {
        const Flight one = f.items[i];
        if (groups != 0xffffffffu && one.group + groups >= f.group) {
            f.items[kept++] = one;
            continue;
        }
        memcpy(one.to, one.data, one.size);
        const uint64_t at = (uint64_t)(one.to - w->shared);
        mark_flight(k->shared, at, one.size, false);
        const uint32_t block = runner_of(w)->block->index;
        const Access a{current->checker, k, block, lane, (int)one.site, WRITE, at, false, one.to, 4};
        touch_range(a, k->shared, at, one.size);
    }
    f.count = kept;
}

// At a barrier for some of the warps; relaxed: tells what fences released.
static void check_arrive(Checker* c, CheckWarp* w, uint32_t lanes, Clock* gathered)
{
    gather(c, w, lanes, *gathered);
    tick(c, w);
}
static void check_arrive_relaxed(Checker* c, CheckWarp* w, uint32_t lanes, Clock* gathered)
{
    KG_LANES(lanes) gather_released(c, w, (uint32_t)__builtin_ctz(m), *gathered);
}
static void check_pass(Checker* c, CheckWarp* w, uint32_t lanes, Clock gathered)
{
    KG_LANES(lanes) join(c, w->threads[__builtin_ctz(m)].known, gathered);
    tick(c, w);
}
static void check_block_barrier(Checker* c, CheckWarp** warps, uint32_t count)  // all living warps of a block are at it
{
    const uint32_t before = c->time;
    Clock all = nullptr;
    if (c->reach > c->per_block)
        for (uint32_t i = 0; i < count; ++i) join_known(c, all, warps[i], ~0u);
    for (uint32_t i = 0; i < count; ++i) {
        for (CheckThread& t : warps[i]->threads) {
            t.floor = before;
            if (all) share(c, t.known, all);
        }
        tick(c, warps[i]);
    }
    drop(c, all);
}

// The life of a launch.

static Checker* new_checker(const Launch* launch)
{
    Checker* c = (Checker*)calloc(1, sizeof(Checker));
    c->launch = launch, c->input = launch->check, c->time = 1;
    c->stores = (launch->block[0] * launch->block[1] * launch->block[2] + 31) / 32 * 32;
    c->per_block = c->reach = c->stores + 32;
    c->blocks = launch->grid[0] * launch->grid[1] * launch->grid[2];
    c->threads = c->per_block * c->blocks;
    c->per_cluster = c->per_block * launch->cluster[0];
    // its ids do not follow on one another
    if (launch->cluster[1] * launch->cluster[2] > 1) c->per_cluster = c->threads;
    c->more = (Readers*)calloc(16, sizeof(Readers)), c->more_count = 1, c->more_room = 16;  // 0 stands for none
    c->buffers = (Shadow**)calloc(c->input->buffer_count + 1, sizeof(Shadow*));
    for (uint32_t i = 0; i < c->input->buffer_count; ++i) {
        const Area& b = c->input->buffers[i];
        if (!b.writable) continue;
        c->buffers[i] = new_shadow(b.base, b.size);
        note_written(c->buffers[i], b);
    }
    c->sink = (uint8_t*)malloc(1 << 16);
    memset(c->sink, 0xff, 1 << 16);
    c->input->log[0] = 0;
    return c;
}

static void free_checker(Checker* c)
{
    for (uint32_t i = 0; i < c->input->buffer_count; ++i)
        if (Shadow* s = c->buffers[i]) {
            look_at_same(c, s, c->input->buffers[i]);
            if (c->input->buffers[i].written) tell_written(s, c->input->buffers[i]);
            free_shadow(s);
        }
    for (uint32_t i = 1; i < c->more_count; ++i) free(c->more[i].items);
    for (uint32_t i = 0; i < c->object_room; ++i) drop(c, c->objects[i].past), drop(c, c->objects[i].phase);
    free(c->buffers), free(c->more), free(c->objects), free(c->seen), free(c->sink);
    free(c);
}

static void begin_warp(Checker* c, CheckWarp* w, uint32_t block, uint32_t index, Shadow* shared)
{
    w->now = ++c->time, w->id = block * c->per_block + 32 * index, w->shared = shared;
}
static void check_ended(Checker* c, const CheckWarp* w, uint32_t block)  // by itself: its copies have been waited for
{
    for (const Flights& f : w->flights)
        for (uint32_t i = 0; i < f.count; ++i)
            say(c, once(9, (int)f.items[i].site, 0), "unwaited %d %u %u its thread ends while it is under way",
                (int)f.items[i].site, block, w->id % c->per_block / 32);
}
static void end_warp(const Checker* c, CheckWarp* w)
{
    for (CheckThread& t : w->threads) drop(c, t.known), drop(c, t.pending), drop(c, t.released.known);
    for (Flights& f : w->flights) free(f.items);
    free(w);
}

}  // namespace kg
