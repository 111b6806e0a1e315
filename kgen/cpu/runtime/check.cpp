#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace kg {

template <class T> static uint32_t append(T*& items, uint32_t& count, uint32_t& room, T item)
{
    if (count == room) items = (T*)realloc(items, sizeof(T) * (room = room ? 2 * room : 16));
    items[count] = item;
    return count++;
}

static void say(Checker* c, uint64_t once, const char* format, ...)
{
    for (uint32_t i = 0; i < c->seen_count; ++i)
        if (c->seen[i] == once) return;
    append(c->seen, c->seen_count, c->seen_room, once);
    if (c->log_used + 512 > c->input->log_size) return;
    va_list given;
    va_start(given, format);
    c->log_used += (uint32_t)vsnprintf(c->input->log + c->log_used, 480, format, given);
    va_end(given);
    c->input->log[c->log_used++] = '\n';
    c->input->log[c->log_used] = 0;
    if (c->seen_count >= c->input->most) snprintf(c->launch->message, c->launch->message_size, "stopped -1 0 0 too many reports");
}

static uint64_t once(int kind, int site, int other) { return (uint64_t)kind << 56 | (uint64_t)(uint32_t)(site + 1) << 28 | (uint32_t)(other + 1); }

// Shadows.

static void* zeroed(uint64_t size)
{
    return mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

Shadow* new_shadow(uint64_t base, uint64_t size)
{
    Shadow* s = (Shadow*)calloc(1, sizeof(Shadow));
    const uint64_t words = size / 4 + 2;
    s->base = base & ~3ull, s->size = size + (base & 3);
    s->words = (Cell*)zeroed(words * sizeof(Cell));
    s->bytes = (Cell*)zeroed(4 * words * sizeof(Cell));
    s->split = (uint8_t*)zeroed(words);
    return s;
}
void free_shadow(Shadow* s)
{
    const uint64_t words = s->size / 4 + 2;
    munmap(s->words, words * sizeof(Cell)), munmap(s->bytes, 4 * words * sizeof(Cell)), munmap(s->split, words);
    free(s);
}

// What was written before the launch, and, when it has ended, by then.
static void note_written(Shadow* s, const Area& b)
{
    const uint64_t words = s->size / 4 + 2, skipped = b.base - s->base;
    for (uint64_t i = 0; i < words; ++i) {
        uint32_t count = 0;
        bool is[4];
        for (uint64_t k = 0; k < 4; ++k) {
            const uint64_t at = 4 * i + k - skipped;
            is[k] = !b.written || at >= b.size || b.written[at];
            count += is[k];
        }
        s->words[i].initialised = count == 4;
        if (count == 0 || count == 4) continue;
        for (uint64_t k = 0; k < 4; ++k) s->bytes[4 * i + k].initialised = is[k];
        s->split[i] = 1;
    }
}
static void tell_written(const Shadow* s, const Area& b)
{
    for (uint64_t i = 0; i < b.size; ++i) {
        const uint64_t at = i + (b.base - s->base);
        const Cell& cell = s->split[at / 4] ? s->bytes[at] : s->words[at / 4];
        b.written[i] = cell.written || cell.initialised;
    }
}

// Clocks.

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

// One access to one cell.

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

static void race(const Access& a, const char* now, uint32_t other, int other_site, const char* then)
{
    const uint32_t per_block = a.c->per_block, thread = a.w->id % per_block, at = other % per_block;
    char who[32] = "an asynchronous store";
    if (at < a.c->stores) snprintf(who, sizeof who, "thread %u", at);
    say(a.c, once(1, a.site, other_site),
        "race %d %u %u thread %u %s %s %llu; %s of block %u %s it, and nothing orders the two: @%d", a.site, a.block,
        thread / 32, thread + (uint32_t)a.lane, now, a.global ? "global address" : "shared memory at",
        (unsigned long long)a.address, who, other / per_block, then, other_site);
}

static void note_reader(const Access& a, Cell& cell)
{
    const uint32_t self = a.w->id + (uint32_t)a.lane;
    if (!cell.more && (!cell.read || cell.reader == self || knows(a.c, a.w, (uint32_t)a.lane, cell.reader, cell.read))) {
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
        say(c, once(2, a.site, (int)cell.write_site), "race %d %u %u a cp.async to shared memory at %llu has not been waited for: @%d", a.site,
            a.block, a.w->id % c->per_block / 32, (unsigned long long)a.address, (int)cell.write_site);
    const uint32_t value = a.width == 4 ? load<uint32_t>(a.data) : *a.data;
    if (cell.flags & SAME && cell.reader != value)
        say(c, once(8, (int)cell.write_site, 0), "race %d %u %u lanes of a warp write different values to the same place, %s %llu",
            (int)cell.write_site, a.block, cell.writer % c->per_block / 32, a.global ? "global address" : "shared memory at",
            (unsigned long long)a.address);
    cell.flags &= (uint16_t)~SAME;
    // One instruction of one warp may write the same value to a place from several lanes: that is looked at afterwards.
    const bool together = a.what & WRITE && cell.written == a.w->now && cell.write_site == (uint32_t)a.site
                       && cell.writer / 32 == a.w->id / 32 && cell.writer != a.w->id + lane && !cell.read && !(cell.more && c->more[cell.more].count);
    if (cell.written && !together && !(strong && cell.flags & STRONG) && !knows(c, a.w, lane, cell.writer, cell.written))
        race(a, a.what & WRITE ? "writes" : "reads", cell.writer, (int)cell.write_site, "wrote");
    if (a.what & READ && !cell.written && !cell.initialised)
        say(c, once(3, a.site, 0), "uninitialised %d %u %u thread %u reads %s %llu, which nobody wrote", a.site, a.block,
            a.w->id % c->per_block / 32, a.w->id % c->per_block + lane, a.global ? "global address" : "shared memory at",
            (unsigned long long)a.address);
    if (!(a.what & WRITE)) {
        if (!strong) note_reader(a, cell);
        return;
    }
    if (cell.read && !knows_read(c, a.w, lane, cell.reader, cell.read)) race(a, "writes", cell.reader, (int)cell.read_site, "read");
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
    if (a.what & READ && o.past) {
        if (a.what & ACQUIRE) join(c, a.w, t.known, o.past);
        else join(c, a.w, t.pending, o.past);
    }
    if (a.what & WRITE) {
        if (a.what & RELEASE) gather(c, a.w, a.lane, o.past), tick(c, a.w);
        else join(c, a.w, o.past, t.released);
    }
}

// What the runtime tells.

static bool within(const Area* areas, uint32_t count, uint64_t at, uint32_t size, const Area** found)
{
    for (uint32_t i = 0; i < count; ++i)
        if (at >= areas[i].base && at + size <= areas[i].base + areas[i].size) {
            *found = &areas[i];
            return true;
        }
    return false;
}

uint8_t* check_access(Checker* c, Warp* w, CheckWarp* k, uint32_t block, Arena shared, uint64_t address, uint32_t size, uint32_t what, int lane,
                      int site)
{
    uint32_t space = what & 0xf00;
    const uint32_t thread = k->id % c->per_block + (uint32_t)lane;
    Access a{c, k, block, lane, site, what & 0xff, address, true, (const uint8_t*)address, 4};
    if (space == GENERIC) {
        if (address - (uint64_t)w->local < 32ull * w->local_size) space = LOCAL;
        else if (address - (uint64_t)w->args < 4096) return (uint8_t*)address;
        else space = GLOBAL;
    }
    if (space == SHARED) address = (uint32_t)address;
    const char* names[] = {"global address", "shared memory at", "local address"};
    const char* verb = what & WRITE ? "writes" : "reads";
    if (size & (size - 1) ? false : address % size)
        say(c, once(4, site, 0), "misaligned %d %u %u thread %u %s %u bytes at %s %llu", site, block, thread / 32, thread, verb, size,
            names[space >> 8], (unsigned long long)address);
    if (space == LOCAL) {
        if (address - (uint64_t)(w->local + (uint64_t)lane * w->local_size) + size <= w->local_size) return (uint8_t*)address;
        say(c, once(5, site, 0), "bounds %d %u %u thread %u %s %u bytes beyond its local memory", site, block, thread / 32, thread, verb, size);
        return c->sink;
    }
    const Area* area = nullptr;
    if (space != GLOBAL) {
        if (!within(c->input->areas, c->input->area_count, address, size, &area)) {
            say(c, once(5, site, 0), "bounds %d %u %u thread %u %s %u bytes at shared memory %llu, which no variable has", site, block, thread / 32,
                thread, verb, size, (unsigned long long)address);
            return c->sink;
        }
        if (what & ASYNC) tick(c, k);
        a.address = address, a.global = false, a.data = shared.memory + address;
        if (a.what & (ATOMIC | RELAXED | ACQUIRE | RELEASE)) strong_access(a, (uint64_t)a.data);
        touch_range(a, shared.shadow, address, size);
        return shared.memory + address;
    }
    if (!within(c->input->buffers, c->input->buffer_count, address, size, &area)) {
        say(c, once(5, site, 0), "bounds %d %u %u thread %u %s %u bytes at a global address beyond every argument", site, block, thread / 32, thread,
            verb, size);
        return c->sink;
    }
    if (what & WRITE && !area->writable) {
        say(c, once(6, site, 0), "input %d %u %u thread %u writes to an argument that is only to be read", site, block, thread / 32, thread);
        return c->sink;
    }
    if (!area->writable) return (uint8_t*)address;
    Shadow* s = c->buffers + (area - c->input->buffers);
    if (a.what & (ATOMIC | RELAXED | ACQUIRE | RELEASE)) strong_access(a, address);
    a.address = address - area->base;
    touch_range(a, s, address - s->base, size);
    return (uint8_t*)address;
}

void check_sync(Checker* c, Warp* w, CheckWarp* k, uint32_t block, uint32_t lanes, int what, uint64_t address, int site)
{
    const int lane = __builtin_ctz(lanes);
    CheckThread& t = k->threads[lane];
    if (what == 0) {  // __syncwarp
        bool clocks = lanes != w->live;
        KG_LANES(lanes) clocks |= k->threads[__builtin_ctz(m)].known != nullptr;
        if (clocks) {
            Clock all = nullptr;
            KG_LANES(lanes) gather(c, k, __builtin_ctz(m), all);
            KG_LANES(lanes) join(c, k, k->threads[__builtin_ctz(m)].known, all);
            free(all);
        }
        if (lanes == w->live) KG_LANES(lanes) k->threads[__builtin_ctz(m)].warp_floor = k->now;
        tick(c, k);
    } else if (what == 1) {  // a fence
        join(c, k, t.known, t.pending);
        if (t.released) clear_clock(c, t.released);
        gather(c, k, lane, t.released);
        tick(c, k);
    } else if (what == 2) {  // arrives at an mbarrier
        gather(c, k, lane, object(c, address).phase);
        tick(c, k);
    } else if (what == 3) {  // passes it
        join(c, k, t.known, object(c, address).past);
    } else if (what == 4) {  // makes it
        Object& o = object(c, address);
        free(o.past), free(o.phase);
        o.past = o.phase = nullptr;
    } else if (what == 5) {  // the phase is over
        Object& o = object(c, address);
        join(c, k, o.past, o.phase);
        if (o.phase) clear_clock(c, o.phase);
    } else if (what == 6) {
        say(c, once(7, site, 0), "divergence %d %u %u lane %d takes part with a lane or a mask that does not: %08llx", site, block,
            k->id % c->per_block / 32, lane, (unsigned long long)address);
    } else if (what == 7) {  // an asynchronous store has come
        Object& o = object(c, address);
        if (!o.phase) o.phase = new_clock(c);
        o.phase[k->id / c->per_block * c->per_block + c->stores] = k->now;
        gather_reads(c, k, lane, o.phase);
        tick(c, k);
    }
}

void check_async(Checker* c, Warp* w, CheckWarp* k, uint32_t block, uint8_t* to, uint64_t address, const uint8_t* from, uint32_t size,
                 uint32_t taken, int lane, int site)
{
    (void)block;
    if (to == c->sink || size > 16) return;
    Flights& f = k->flights[lane];
    Flight one{to, {}, address, size, f.group, (uint32_t)site};
    for (uint32_t i = 0; i < taken && i < size; ++i) one.data[i] = from[i];
    append(f.items, f.count, f.room, one);
    memset(to, 0xff, size);
    mark_flight(k->shared, (uint64_t)(to - w->shared), size, true);
}

void check_group(Checker* c, Warp* w, CheckWarp* k, uint32_t block, int lane, int what, uint32_t count)
{
    Flights& f = k->flights[lane];
    if (what == 0) {
        ++f.group;
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f.count; ++i) {
        const Flight one = f.items[i];
        if (count != 0xffffffffu && one.group + count >= f.group) {
            f.items[kept++] = one;
            continue;
        }
        memcpy(one.to, one.data, one.size);
        const uint64_t at = (uint64_t)(one.to - w->shared);
        mark_flight(k->shared, at, one.size, false);
        touch_range(Access{c, k, block, lane, (int)one.site, WRITE, at, false, one.to, 4}, k->shared, at, one.size);
    }
    f.count = kept;
}

void check_arrive(Checker* c, CheckWarp* w, uint32_t lanes, Clock* gathered)
{
    KG_LANES(lanes) gather(c, w, __builtin_ctz(m), *gathered);
    tick(c, w);
}
void check_arrive_relaxed(Checker* c, CheckWarp* w, uint32_t lanes, Clock* gathered)
{
    KG_LANES(lanes) join(c, w, *gathered, w->threads[__builtin_ctz(m)].released);
}
void check_pass(Checker* c, CheckWarp* w, uint32_t lanes, Clock gathered)
{
    KG_LANES(lanes) join(c, w, w->threads[__builtin_ctz(m)].known, gathered);
    tick(c, w);
}
void check_block_barrier(Checker* c, CheckWarp** warps, uint32_t count)
{
    const uint32_t before = c->time;
    Clock all = nullptr;
    if (c->reach > c->per_block)
        for (uint32_t i = 0; i < count; ++i)
            for (int lane = 0; lane < 32; ++lane) join(c, warps[i], all, warps[i]->threads[lane].known);
    for (uint32_t i = 0; i < count; ++i) {
        for (int lane = 0; lane < 32; ++lane) {
            warps[i]->threads[lane].floor = before;
            join(c, warps[i], warps[i]->threads[lane].known, all);
        }
        tick(c, warps[i]);
    }
    free(all);
}

// The life of a launch.

Checker* new_checker(const Launch* launch)
{
    Checker* c = (Checker*)calloc(1, sizeof(Checker));
    c->launch = launch, c->input = launch->check, c->time = 1;
    c->stores = (launch->block[0] * launch->block[1] * launch->block[2] + 31) / 32 * 32;
    c->per_block = c->reach = c->stores + 32;
    c->threads = c->per_block * launch->grid[0] * launch->grid[1] * launch->grid[2];
    c->per_cluster = c->per_block * launch->cluster[0];
    if (launch->cluster[1] * launch->cluster[2] > 1) c->per_cluster = c->threads;  // its ids do not follow on one another
    c->more = (Readers*)calloc(16, sizeof(Readers)), c->more_count = 1, c->more_room = 16;  // 0 stands for none
    c->buffers = (Shadow*)calloc(c->input->buffer_count + 1, sizeof(Shadow));
    for (uint32_t i = 0; i < c->input->buffer_count; ++i) {
        const Area& b = c->input->buffers[i];
        if (!b.writable) continue;
        Shadow* s = new_shadow(b.base, b.size);
        note_written(s, b);
        c->buffers[i] = *s;
        free(s);
    }
    c->sink = (uint8_t*)malloc(1 << 16);
    memset(c->sink, 0xff, 1 << 16);
    c->input->log[0] = 0;
    return c;
}

void free_checker(Checker* c)
{
    for (uint32_t i = 0; i < c->input->buffer_count; ++i)
        if (c->buffers[i].words) {
            if (c->input->buffers[i].written) tell_written(&c->buffers[i], c->input->buffers[i]);
            Shadow* s = (Shadow*)malloc(sizeof(Shadow));
            *s = c->buffers[i];
            free_shadow(s);
        }
    for (uint32_t i = 1; i < c->more_count; ++i) free(c->more[i].items);
    for (uint32_t i = 0; i < c->object_room; ++i) free(c->objects[i].past), free(c->objects[i].phase);
    free(c->buffers), free(c->more), free(c->objects), free(c->seen), free(c->sink);
    free(c);
}

void begin_warp(Checker* c, CheckWarp* w, uint32_t block, uint32_t index, Shadow* shared)
{
    w->now = ++c->time, w->id = block * c->per_block + 32 * index, w->shared = shared;
}
void end_warp(CheckWarp* w)
{
    for (int lane = 0; lane < 32; ++lane) {
        free(w->threads[lane].known), free(w->threads[lane].pending), free(w->threads[lane].released);
        free(w->flights[lane].items);
    }
    free(w);
}

}  // namespace kg
