// One access to one cell, and what it says of those before; and the words by which threads synchronize.
#pragma once
#include "clocks.h"

namespace kg {

struct Access {
    Checker* c;
    CheckWarp* w;
    uint32_t block;
    int lane, site;
    uint32_t what;
    uint64_t address;
    bool global;
    const uint8_t* data;
    uint32_t width;  // of the cell
};

// A report of an access: of which kind, and what else there is to say of its thread.
static void complain(const Access& a, uint64_t once, const char* kind, const char* format, ...)
{
    if (said(a.c, once)) return;
    char text[400];
    va_list given;
    va_start(given, format);
    vsnprintf(text, sizeof text, format, given);
    va_end(given);
    const uint32_t thread = a.w->id % a.c->per_block + (uint32_t)a.lane;
    say(a.c, once, "%s %d %u %u thread %u %s", kind, a.site, a.block, thread / 32, thread, text);
}
static const char* const GLOBALLY = "global address";
static const char* space_of(const Access& a) { return a.global ? GLOBALLY : "shared memory at"; }

static void race(const Access& a, const char* now, uint32_t other, int other_site, const char* then)
{
    const uint32_t block = other / a.c->per_block, at = other % a.c->per_block;
    char who[32] = "an asynchronous store";
    if (at < a.c->stores) snprintf(who, sizeof who, "thread %u", at);
    complain(a, once(1, a.site, other_site), "race",
             "%s %s %llu; %s of block %u %s it, and nothing orders the two: @%d",
             now, space_of(a), (unsigned long long)a.address, who, block, then, other_site);
}

static void note_reader(const Access& a, Cell& cell)
{
    const uint32_t self = a.w->id + (uint32_t)a.lane;
    const bool alone = !cell.read || cell.reader == self || knows(a.c, a.w, (uint32_t)a.lane, cell.reader, cell.read);
    if (!cell.more && alone) {
        cell.reader = self, cell.read = a.w->now, cell.read_site = (uint32_t)a.site;
        return;
    }
    Checker* c = a.c;
    if (!cell.more) {
        cell.more = append(c->more, c->more_count, c->more_room, Readers{nullptr, 0, 0});
    }
    Readers& readers = c->more[cell.more];
    for (uint32_t i = 0; i < readers.count; ++i) {
        Reader& r = readers.items[i];
        if (r.warp != a.w->id) continue;
        if (r.time != a.w->now) {
            bool all = true;
            KG_LANES(r.lanes) all &= knows(c, a.w, (uint32_t)a.lane, r.warp + (uint32_t)__builtin_ctz(m), r.time);
            if (all) r.lanes = 0;
            r.time = a.w->now;
        }
        r.lanes |= 1u << a.lane, r.site = (uint32_t)a.site;
        return;
    }
    append(readers.items, readers.count, readers.room, Reader{a.w->id, 1u << a.lane, a.w->now, (uint32_t)a.site});
}

// Lanes of one instruction wrote to a place: whether the same value, the last of them, which is there now, tells.
static void look_at_same(Checker* c, Cell& cell, uint32_t value, const char* space, uint64_t address)
{
    if (cell.flags & SAME && cell.reader != value)
        say(c, once(8, (int)cell.write_site, 0),
            "race %d %u %u lanes of a warp write different values to the same place, %s %llu", (int)cell.write_site,
            cell.writer / c->per_block, cell.writer % c->per_block / 32, space, (unsigned long long)address);
    cell.flags &= (uint16_t)~SAME;
}
static void look_at_same(Checker* c, Shadow* s, const Area& b)  // where nobody came after them
{
    for (uint64_t word = 0; word < words_of(s); ++word) {
        const uint64_t at = s->base + 4 * word;
        if (!s->split[word]) {
            if (s->words[word].flags & SAME)
                look_at_same(c, s->words[word], load<uint32_t>((const uint8_t*)at), GLOBALLY, at - b.base);
            continue;
        }
        for (int i = 0; i < 4; ++i) {
            Cell& cell = s->bytes[4 * word + i];
            if (cell.flags & SAME) look_at_same(c, cell, *(const uint8_t*)(at + i), GLOBALLY, at + i - b.base);
        }
    }
}

static void drop_readers(Checker* c, Cell& cell)
{
    cell.read = 0;
    if (cell.more) c->more[cell.more].count = 0;  // it stays with the cell
}

static void touch(const Access& a, Cell& cell)
{
    Checker* c = a.c;
    const uint32_t lane = (uint32_t)a.lane;
    const bool strong = a.what & (ATOMIC | RELAXED | ACQUIRE | RELEASE);
    if (cell.flags & IN_FLIGHT)
        say(c, once(2, a.site, (int)cell.write_site),
            "race %d %u %u a cp.async to shared memory at %llu has not been waited for: @%d",
            a.site, a.block, a.w->id % c->per_block / 32, (unsigned long long)a.address, (int)cell.write_site);
    const uint32_t value = a.width == 4 ? load<uint32_t>(a.data) : *a.data;
    look_at_same(c, cell, value, space_of(a), a.address);
    // One instruction of one warp may write the same value to a place from several lanes: that is looked at afterwards.
    const bool read = cell.read || (cell.more && c->more[cell.more].count);
    const bool same_instruction =
        cell.written == a.w->now && cell.write_site == (uint32_t)a.site && cell.writer / 32 == a.w->id / 32;
    const bool together = a.what & WRITE && same_instruction && cell.writer != a.w->id + lane && !read;
    const bool atomic = strong && cell.flags & STRONG;
    if (cell.written && !together && !atomic && !knows(c, a.w, lane, cell.writer, cell.written))
        race(a, a.what & WRITE ? "writes" : "reads", cell.writer, (int)cell.write_site, "wrote");
    if (a.what & READ && !cell.written && !cell.initialised)
        complain(a, once(3, a.site, 0), "uninitialised", "reads %s %llu, which nobody wrote", space_of(a),
                 (unsigned long long)a.address);
    if (!(a.what & WRITE)) {
        if (!strong) note_reader(a, cell);
        return;
    }
    if (cell.read && !knows_read(c, a.w, lane, cell.reader, cell.read))
        race(a, "writes", cell.reader, (int)cell.read_site, "read");
    if (cell.more) {
        const Readers& readers = c->more[cell.more];
        for (uint32_t i = 0; i < readers.count; ++i) {
            const Reader& r = readers.items[i];
            KG_LANES(r.lanes)
            if (!knows_read(c, a.w, lane, r.warp + (uint32_t)__builtin_ctz(m), r.time)) {
                race(a, "writes", r.warp + (uint32_t)__builtin_ctz(m), (int)r.site, "read");
                break;
            }
        }
    }
    cell.writer = a.what & ASYNC ? a.w->id / c->per_block * c->per_block + c->stores : a.w->id + lane;
    cell.written = a.w->now, cell.write_site = (uint32_t)a.site;
    cell.flags = strong ? STRONG : 0;
    drop_readers(c, cell);
    if (together && !strong) cell.flags |= SAME, cell.reader = value;
}

static void split_word(Checker* c, Shadow* s, uint64_t word)
{
    for (int i = 0; i < 4; ++i) {
        Cell& cell = s->bytes[4 * word + i];
        cell = s->words[word];
        if (cell.flags & SAME) cell.reader = cell.reader >> (8 * i) & 255;
        if (cell.more) {
            const Readers from = c->more[cell.more];
            cell.more = append(c->more, c->more_count, c->more_room, Readers{nullptr, 0, 0});
            for (uint32_t k = 0; k < from.count; ++k) {
                Readers& to = c->more[cell.more];
                append(to.items, to.count, to.room, from.items[k]);
            }
        }
    }
    s->split[word] = 1;
}

static void touch_range(Access a, Shadow* s, uint64_t at, uint32_t size)
{
    const uint64_t end = at + size;
    while (at < end) {
        const uint64_t word = at / 4;
        const bool whole = at % 4 == 0 && end - at >= 4;
        if (whole && !s->split[word]) {
            a.width = 4;
            touch(a, s->words[word]);
            at += 4, a.address += 4, a.data += 4;
            continue;
        }
        if (!s->split[word]) split_word(a.c, s, word);
        const uint64_t stop = 4 * (word + 1) < end ? 4 * (word + 1) : end;
        a.width = 1;
        for (; at < stop; ++at, ++a.address, ++a.data) touch(a, s->bytes[at]);
        if (whole && a.what & WRITE) {  // the four bytes are alike again
            s->words[word] = s->bytes[4 * word];
            s->words[word].more = 0;
            s->words[word].flags &= (uint16_t)~SAME;
            s->split[word] = 0;
        }
    }
}

static void mark_flight(Shadow* s, uint64_t at, uint32_t size, bool flying)
{
    for (uint64_t i = at; i < at + size; ++i) {
        Cell& cell = s->split[i / 4] ? s->bytes[i] : s->words[i / 4];
        cell.flags = flying ? (uint16_t)(cell.flags | IN_FLIGHT) : (uint16_t)(cell.flags & ~IN_FLIGHT);
    }
}

// Objects: words that threads synchronize by.

static Object& object(Checker* c, uint64_t address)
{
    if (2 * (c->object_count + 1) > c->object_room) {
        const uint32_t room = c->object_room ? 2 * c->object_room : 256;
        Object* bigger = (Object*)calloc(room, sizeof(Object));
        for (uint32_t i = 0; i < c->object_room; ++i)
            if (c->objects[i].address) {
                uint64_t k = c->objects[i].address * 0x9e3779b97f4a7c15ull >> 32;
                while (bigger[k % room].address) ++k;
                bigger[k % room] = c->objects[i];
            }
        free(c->objects);
        c->objects = bigger, c->object_room = room;
    }
    uint64_t k = address * 0x9e3779b97f4a7c15ull >> 32;
    while (c->objects[k % c->object_room].address && c->objects[k % c->object_room].address != address) ++k;
    Object& found = c->objects[k % c->object_room];
    if (!found.address) found.address = address, ++c->object_count;
    return found;
}

static void strong_access(const Access& a, uint64_t address)
{
    Checker* c = a.c;
    CheckThread& t = a.w->threads[a.lane];
    if (a.global) c->reach = c->threads;
    Object& o = object(c, address);
    if (a.what & READ) join(c, a.what & ACQUIRE ? t.known : t.pending, o.past);
    if (a.what & WRITE) {
        if (a.what & RELEASE) gather(c, a.w, 1u << a.lane, o.past), tick(c, a.w);
        else gather_released(c, a.w, (uint32_t)a.lane, o.past);
    }
}

}  // namespace kg
