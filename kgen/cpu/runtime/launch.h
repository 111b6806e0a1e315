// What a launch is, as Python fills it in (run.py has the same fields).
#pragma once
#include "warp.h"

namespace kg {

struct Check;
struct List;

struct Launch {
    const List* list;         // the kernel
    const uint8_t* args;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t shared_end;      // of the static variables; dynamic shared memory follows
    uint32_t dynamic_shared;
    uint64_t stack;           // bytes of a warp's stack
    uint32_t threads;         // of the host
    uint32_t order;           // of blocks and warps: 0 forward, 1 reverse, 2 random
    uint64_t seed;
    double patience;          // seconds without progress after which a launch has failed
    Check* check;             // null: no checks
    char* message;            // what went wrong
    uint32_t message_size;
};

// Where a report's text goes; the first one of a launch stays.
static inline bool failed(const Launch* launch)
{
    return __atomic_load_n((volatile char*)launch->message, __ATOMIC_RELAXED) != 0;
}

}  // namespace kg
