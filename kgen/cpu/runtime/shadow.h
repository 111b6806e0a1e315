// Reports, each said once; and shadows, which know of each byte what was done to it.
#pragma once
#include "check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kg {

// Python tells of this end, see checked.py.
static void* or_end(void* memory)
{
    if (!memory || memory == MAP_FAILED) _exit(ENOMEM);
    return memory;
}
static void* room(size_t bytes) { return or_end(calloc(1, bytes)); }

template <class T> static uint32_t append(T*& items, uint32_t& count, uint32_t& room, T item)
{
    if (count == room) items = (T*)or_end(realloc(items, sizeof(T) * (room = room ? 2 * room : 16)));
    items[count] = item;
    return count++;
}

static bool said(const Checker* c, uint64_t once)
{
    for (uint32_t i = 0; i < c->seen_count; ++i)
        if (c->seen[i] == once) return true;
    return false;
}
static void say(Checker* c, uint64_t once, const char* format, ...)
{
    if (said(c, once)) return;
    append(c->seen, c->seen_count, c->seen_room, once);
    if (c->log_used + 512 > c->input->log_size) return;
    va_list given;
    va_start(given, format);
    c->log_used += (uint32_t)vsnprintf(c->input->log + c->log_used, 480, format, given);
    va_end(given);
    c->input->log[c->log_used++] = '\n';
    c->input->log[c->log_used] = 0;
    const Launch* launch = c->launch;
    if (c->seen_count >= c->input->most)
        snprintf(launch->message, launch->message_size, "stopped -1 0 0 too many reports");
}

static uint64_t once(int kind, int site, int other)
{
    return (uint64_t)kind << 56 | (uint64_t)(uint32_t)(site + 1) << 28 | (uint32_t)(other + 1);
}

// Shadows.

static void* zeroed(uint64_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    return or_end(mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, flags, -1, 0));
}

static uint64_t words_of(const Shadow* s) { return s->size / 4 + 2; }

static Shadow* new_shadow(uint64_t base, uint64_t size)  // of what nobody has written
{
    Shadow* s = (Shadow*)calloc(1, sizeof(Shadow));
    s->base = base & ~3ull, s->size = size + (base & 3);
    const uint64_t words = words_of(s);
    s->words = (Cell*)zeroed(words * sizeof(Cell));
    s->bytes = (Cell*)zeroed(4 * words * sizeof(Cell));
    s->split = (uint8_t*)zeroed(words);
    return s;
}
static void free_shadow(Shadow* s)
{
    const uint64_t words = words_of(s);
    munmap(s->words, words * sizeof(Cell)), munmap(s->bytes, 4 * words * sizeof(Cell)), munmap(s->split, words);
    free(s);
}

// What was written before the launch, and, when it has ended, by then.
static void note_written(Shadow* s, const Area& b)
{
    const uint64_t words = words_of(s), skipped = b.base - s->base;
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

}  // namespace kg
