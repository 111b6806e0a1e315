// Runs a kernel, which is a list of numbers (translate/listing.py).
#pragma once
#include "calls.h"
#include "places.h"
#include "shape.h"

namespace kg {

// A list begins with these numbers; what is `at` counts from the list's beginning.
struct Head {
    int32_t places, rows, room, values, blocks;       // rows of 32 bits; bytes of a lane's memory, registers; of a region
    int32_t sites_at, loops_at, unset_at, starts_at;  // a site for each place; see Warp::loops; pairs: from, bytes; code
};
struct List {
    const int32_t* numbers;
    Shape* const* shapes;
    Product* const* products;
    const uint64_t* variables;
};

// What lanes do together: meet, all of the warp or whom masks name; a cut; a run of fragments; a region; go on, or wait.
enum Together { ALL, NAMED, CUT, FRAGMENTS, REGION, LEAVE, GO, GIVE_WAY };
// What ends a block of a region, beside shapes, which are numbered from 0 on.
enum Alone { JUMP = -1, IF = -2, SWITCH = -3, EXIT = -4, DONE = -5 };

// What follows REGION.
struct Stretch {
    int32_t exits, over_at, in_turn, blocks, begins_at[];  // in_turn: each lane is to be done before the next one begins
};

// Lanes go through a region. Those in the first of its blocks that anybody is in go on, so that lanes that parted meet
// again. Where they leave it stands in `exits`; `ready` is room for who waits in which block, all zero.
static void go_through(
    Listed& s, const List& list, uint32_t go, const Stretch& region, uint32_t* exits, uint64_t* ready)
{
    const int32_t* const numbers = list.numbers;
    Shape* const* const shapes = list.shapes;
    uint32_t* const lanes_in = (uint32_t*)(ready + (region.blocks + 63) / 64);
    uint32_t lanes = go, others = 0;
    const int32_t *at = numbers + region.begins_at[0], *others_at = nullptr;
    for (;;) {
        s.lanes = lanes;
        while (*at >= 0) {
            const int32_t shape = *at++;
            at = shapes[shape](&s, at);
        }
        switch (*at) {
        case IF: {  // the others go on at at[3]
            const bool* test = row<bool>(&s, at[1]);
            uint32_t found = 0;
            KG_LANES(lanes) if (test[__builtin_ctz(m)] != (at[2] != 0)) found |= m & -m;
            others = lanes & ~found, others_at = numbers + at[3];
            at += 4, lanes = found;
            break;
        }
        case SWITCH: {  // lanes with other values come here again
            const uint32_t* test = row<uint32_t>(&s, at[1]);
            const uint32_t value = test[__builtin_ctz(lanes)];
            uint32_t found = 0;
            KG_LANES(lanes) if (test[__builtin_ctz(m)] == value) found |= m & -m;
            others = lanes & ~found, others_at = at;
            at = numbers + at[2 + value], lanes = found;
            break;
        }
        case JUMP:
            if (lanes) lanes_in[at[1]] |= lanes, ready[at[1] >> 6] |= 1ull << (at[1] & 63);
            lanes = 0;
            break;
        case EXIT: exits[at[1]] |= lanes, lanes = 0; break;
        case DONE: lanes = 0; break;
        }
        if (lanes) continue;
        if (others) {
            lanes = others, at = others_at, others = 0;
            continue;
        }
        int word = 0;
        while (word < (region.blocks + 63) / 64 && !ready[word]) ++word;
        if (word == (region.blocks + 63) / 64) return;
        const int block = 64 * word + __builtin_ctzll(ready[word]);
        ready[word] &= ready[word] - 1;
        lanes = lanes_in[block], lanes_in[block] = 0;
        at = numbers + region.begins_at[block];
    }
}

// All that a place does; returns where its lanes go next.
static int go_together(
    Listed& s, const List& list, Waiting& waiting, int place, uint32_t& go, uint32_t* exits, uint64_t* ready)
{
    const int32_t* const numbers = list.numbers;
    const int32_t* at = numbers + numbers[((const Head*)numbers)->starts_at + place];
    Warp* w = s.w;
    s.found = true;
    for (;;) switch (*at++) {
        case ALL:
            if (!waiting.all(w, place, go)) return OTHERS;
            break;
        case NAMED:
            s.group = go | waiting.at[place];
            at = list.shapes[at[0]](&s, at + 1);
            if (!(go = waiting.complete(w, place, go, s.masks))) return OTHERS;
            if (const uint32_t named = s.masks[__builtin_ctz(go)]; runner_of(w)->check && go & ~named)
                sync(w, go & ~named, ASTRAY, named, numbers[((const Head*)numbers)->sites_at + place]);
            break;
        case CUT:
            s.group = go;
            at = list.shapes[at[0]](&s, at + 1);
            break;
        case FRAGMENTS:
            w->calls->fragments(w, s.rows->u32, list.products, at + 1, at + 1 + at[0]);
            at += 1 + at[0];
            break;
        case REGION: {
            const Stretch& region = *(const Stretch*)at;
            for (int i = 0; i < region.exits; ++i) exits[i] = 0;
            if (region.in_turn || runner_of(w)->check) KG_LANES(go) go_through(s, list, m & -m, region, exits, ready);
            else go_through(s, list, go, region, exits, ready);
            at = numbers + region.over_at;
            break;
        }
        case LEAVE: return waiting.leave(w, go, exits, at + 1, at[0]);
        case GO: return at[0];
        case GIVE_WAY:
            if (!s.found) return waiting.give_way(w, go, at[0], at[1]);
            at += 2;
            break;
        }
}

// Registers within a region: no warp lets go of its thread in one, so all on a thread share the room.
static uint8_t* room_for_values(Worker* worker, size_t size)
{
    if (worker->values_size < size) {
        free(worker->values);
        worker->values_size = (size + 63) / 64 * 64;
        worker->values = (uint8_t*)aligned_alloc(64, worker->values_size);
    }
    return worker->values;
}

static void run(Warp* w, const List& list)
{
    const int32_t* const numbers = list.numbers;
    const Head& head = *(const Head*)numbers;
    const size_t words = (size_t)(head.places + 63) / 64;
    uint32_t* waiting_at = (uint32_t*)__builtin_alloca(sizeof(uint32_t) * (size_t)head.places);
    uint64_t* ready = (uint64_t*)__builtin_alloca(sizeof(uint64_t) * words);
    const size_t blocks = (size_t)head.blocks, inside_size = 8 * ((blocks + 63) / 64) + 4 * blocks;
    uint64_t* inside = (uint64_t*)__builtin_alloca(inside_size);
    memset(inside, 0, inside_size);
    uint32_t* exits = (uint32_t*)__builtin_alloca(sizeof(uint32_t) * (size_t)(head.places + 1));
    memset(waiting_at, 0, sizeof(uint32_t) * (size_t)head.places);
    memset(ready, 0, sizeof(uint64_t) * words);
    Waiting waiting = {waiting_at, ready, head.places, 0, OTHERS};
    Listed s = {};
    s.w = w;
    s.rows = (LaneRows*)__builtin_alloca_with_align((size_t)head.rows * 128 + 256, 512);
    s.values = room_for_values(current, (size_t)head.values * 32 + 128);
    w->local = (uint8_t*)__builtin_alloca_with_align((size_t)head.room * 32 + 16, 512);
    w->local_size = (uint32_t)head.room;
    for (const int32_t* unset = numbers + head.unset_at; *unset >= 0; unset += 2)
        memset((uint8_t*)s.rows + unset[0], 0xff, (size_t)unset[1]);
    w->loops = numbers + head.loops_at;
    uint32_t go = w->live;
    int place = 0;
    for (;;) {
        w->place = place;
        place = go_together(s, list, waiting, place, go, exits, inside);
        if (place == OTHERS) {
            if (!w->live) return;
            place = waiting.pick(go);
            if (place == OTHERS) w->calls->stuck(w, waiting.at, numbers + head.sites_at, head.places);
        }
    }
}

}  // namespace kg
