// What the machine is made of: workers, clusters, blocks, a fiber for each warp; and memory that outlives a launch.
#pragma once
#include "shadow.h"

#include <pthread.h>
#include <time.h>

#include "fiber.h"

namespace kg {

enum State { READY, BLOCKED, ENDED };
enum { BARRIERS = 16, SHARED_SPACE = 256 << 10 };

struct Block;
struct Worker;

struct Runner {
    Warp warp;  // first: the kernel's pointer to it is a pointer to this
    Fiber fiber;
    Stack stack;
    Block* block;
    State state;
    int site;         // where it waits
    uint32_t barrier;
    uint32_t answer;  // of a barrier that reduces
    CheckWarp* check;
};

struct Barrier {
    uint32_t arrived, expected, votes, lanes;  // warps; threads that voted yes; threads
    bool fixed;                                // it names a number of threads
    Clock gathered;                            // what those who arrived know, where not all of the block meet
};

struct Cluster;
struct Block {
    Cluster* cluster;
    Stack arena;
    uint8_t* memory;  // its shared memory, in there
    uint32_t index, warps, living;
    int32_t spare;  // registers, see set_registers
    Barrier barriers[BARRIERS];
    Runner* runners;
    Shadow* shadow;
};

struct Cluster {
    Block* blocks;
    uint32_t count, living, arrived, phase;
    Clock gathered, passed;  // what those know who arrived, in this phase and the last one
    Cluster* next;
};

struct Worker {
    const Launch* launch;
    uint64_t progress;
    uint64_t polls;  // since the last cluster began for their sake
    uint32_t* next_unit;
    uint32_t units;
    const uint32_t* order;
    Cluster* alive;
    Runner** ring;
    uint32_t ring_count, ring_room;
    Fiber home;
    Runner* running;
    uint64_t switches, switches_seen;  // to a fiber; at the last tick of a clock
    uint32_t ticks;                    // since then
    uint64_t random;
    Checker* checker;
    uint8_t* values;  // room for registers, see listed.h
    size_t values_size;
};

// Stacks, and blocks' shared memory, outlive a launch: the next one uses them again.
struct Pool {
    pthread_mutex_t lock;
    Stack* free;
    uint32_t count, room;
};
static Pool pool = {PTHREAD_MUTEX_INITIALIZER, nullptr, 0, 0};

static Stack take_stack(size_t size)
{
    Stack found = {nullptr, 0};
    pthread_mutex_lock(&pool.lock);
    for (uint32_t i = pool.count; i-- > 0 && !found.base;)
        if (pool.free[i].size > size) {  // a page more
            found = pool.free[i];
            pool.free[i] = pool.free[--pool.count];
        }
    pthread_mutex_unlock(&pool.lock);
    return found.base ? found : new_stack(size);
}
static void give_stack(Stack stack)
{
    pthread_mutex_lock(&pool.lock);
    if (pool.count < 512) append(pool.free, pool.count, pool.room, stack);
    else munmap(stack.base, stack.size);
    pthread_mutex_unlock(&pool.lock);
}

static Runner* runner_of(Warp* w) { return (Runner*)w; }
static __thread Worker* current;

static uint64_t random_number(uint64_t& state)  // splitmix64
{
    uint64_t x = state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static double seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void report(const Launch* launch, const char* format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!failed(launch)) {
        va_list given;
        va_start(given, format);
        vsnprintf(launch->message, launch->message_size, format, given);
        va_end(given);
    }
    pthread_mutex_unlock(&lock);
}

}  // namespace kg
