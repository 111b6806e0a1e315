// The machine: blocks over threads of the host, one fiber for each warp, barriers, and a fair round-robin between them.
//
// A worker (a thread of the host) takes the next cluster of blocks and runs its warps in turn until all have ended. Where
// nobody gets on because all of them wait for blocks that have not begun, it takes one more: so blocks that wait for one
// another are all alive in the end, and no launch needs to say that it is cooperative.
#include "check.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
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
    uint8_t* memory;  // its shared memory
    uint32_t index, warps, living;
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
    struct Pool* pool;
    uint64_t progress;
    uint64_t polls;  // since the last cluster began for their sake
    uint32_t* next_unit;
    uint32_t units;
    const uint32_t* order;
    Cluster* alive;
    Runner** ring;
    uint32_t ring_count, ring_room;
    Fiber home;
    Runner* now;
    uint64_t random;
    Checker* checker;
};


// Memory that outlives a launch: stacks and shared memory are used again by the next one.
struct Pool {
    pthread_mutex_t lock;
    Stack* stacks;
    uint32_t stack_count, stack_room;
    uint8_t** arenas;
    uint32_t arena_count, arena_room;
};
static Pool pool = {PTHREAD_MUTEX_INITIALIZER, nullptr, 0, 0, nullptr, 0, 0};

template <class T> static void push(T*& items, uint32_t& count, uint32_t& room, T item)
{
    if (count == room) items = (T*)realloc(items, sizeof(T) * (room = room ? 2 * room : 64));
    items[count++] = item;
}

static Stack take_stack(size_t size)
{
    pthread_mutex_lock(&pool.lock);
    for (uint32_t i = pool.stack_count; i-- > 0;)
        if (pool.stacks[i].size >= size) {
            Stack found = pool.stacks[i];
            pool.stacks[i] = pool.stacks[--pool.stack_count];
            pthread_mutex_unlock(&pool.lock);
            return found;
        }
    pthread_mutex_unlock(&pool.lock);
    return new_stack(size);
}
static void give_stack(Stack stack)
{
    pthread_mutex_lock(&pool.lock);
    if (pool.stack_count < 256) push(pool.stacks, pool.stack_count, pool.stack_room, stack);
    else munmap(stack.base, stack.size);
    pthread_mutex_unlock(&pool.lock);
}
static uint8_t* take_arena()
{
    uint8_t* found = nullptr;
    pthread_mutex_lock(&pool.lock);
    if (pool.arena_count) found = pool.arenas[--pool.arena_count];
    pthread_mutex_unlock(&pool.lock);
    if (found) return found;
    void* p = mmap(nullptr, SHARED_SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : (uint8_t*)p;
}
static void give_arena(uint8_t* arena)
{
    pthread_mutex_lock(&pool.lock);
    push(pool.arenas, pool.arena_count, pool.arena_room, arena);
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

// Control between the worker and its fibers.

static void pause(Runner* r) { switch_to(&r->fiber, &current->home); }

static void abandon(Runner* r)  // the launch has failed; nobody comes back to this fiber
{
    for (;;) pause(r);
}

static void yield(Warp* w, int site)
{
    Runner* r = runner_of(w);
    r->site = site;
    pause(r);
    r->site = -1;
}

static void release(Block* block, uint32_t id)
{
    Barrier& b = block->barriers[id];
    CheckWarp* together[64];
    uint32_t count = 0;
    for (uint32_t i = 0; i < block->warps; ++i) {
        Runner& r = block->runners[i];
        if (r.state != BLOCKED || r.barrier != id) continue;
        r.state = READY, r.answer = b.votes;
        if (r.check && b.fixed && b.gathered) check_pass(current->checker, r.check, r.warp.live, b.gathered);
        together[count++] = r.check;
    }
    if (current->checker && !b.gathered) check_block_barrier(current->checker, together, count);
    free(b.gathered);
    b.gathered = nullptr;
    b.arrived = b.votes = b.lanes = 0;
    b.fixed = false;
}
static void settle(Block* block, uint32_t id)  // is the barrier complete now?
{
    Barrier& b = block->barriers[id];
    const uint32_t expected = b.fixed ? b.expected : block->living;
    if (b.arrived && b.arrived >= expected) release(block, id);
}

static uint32_t barrier(Warp* w, uint32_t id, uint32_t count, int kind, uint32_t votes, uint32_t present, int site)
{
    Runner* r = runner_of(w);
    Block* block = r->block;
    const Launch* launch = current->launch;
    if (id >= BARRIERS) {
        report(launch, "barrier %d %u 0 there are %d barriers, and this is number %u", site, block->index, (int)BARRIERS, id);
        abandon(r);
    }
    Barrier& b = block->barriers[id];
    if (b.arrived && (b.fixed != (count != 0) || (b.fixed && b.expected != count / 32))) {
        report(launch, "barrier %d %u %u barrier %u is used with different numbers of threads", site, block->index, w->index, id);
        abandon(r);
    }
    b.fixed = count != 0, b.expected = count / 32;
    ++b.arrived;
    b.votes += (uint32_t)__builtin_popcount(votes);
    b.lanes += (uint32_t)__builtin_popcount(present);
    ++current->progress;
    const uint32_t lanes = b.lanes;
    if (r->check && b.fixed) check_arrive(current->checker, r->check, w->live, &b.gathered);
    if (kind == 1) {
        settle(block, id);
        return 0;
    }
    r->state = BLOCKED, r->barrier = id, r->site = site, r->answer = lanes;
    settle(block, id);
    if (r->state == BLOCKED) pause(r);
    r->site = -1;
    const uint32_t yes = r->answer;
    return kind == 2 ? yes : kind == 3 ? yes == w->ntid[0] * w->ntid[1] * w->ntid[2] : yes != 0;
}

static void reach_cluster(Checker* checker)  // blocks of a cluster tell one another what they know
{
    if (checker->reach < checker->per_cluster) checker->reach = checker->per_cluster;
}

static void settle(Cluster* c)
{
    uint32_t living = 0;
    for (uint32_t i = 0; i < c->count; ++i) living += c->blocks[i].living;
    if (!c->arrived || c->arrived < living) return;
    free(c->passed);
    c->passed = c->gathered, c->gathered = nullptr;
    c->arrived = 0, ++c->phase;
}

// barrier.cluster: 0 arrive, 1 wait, 2 arrive.relaxed.
static void cluster(Warp* w, int kind, int site)
{
    Runner* r = runner_of(w);
    Cluster* c = r->block->cluster;
    if (kind != 1) {
        r->answer = c->phase;
        if (r->check) {
            reach_cluster(current->checker);
            (kind == 0 ? check_arrive : check_arrive_relaxed)(current->checker, r->check, w->live, &c->gathered);
        }
        ++c->arrived, ++current->progress;
        settle(c);
        return;
    }
    r->site = site;
    const uint32_t phase = r->answer;
    while (c->phase == phase) {
        settle(c);
        if (c->phase == phase) pause(r);
    }
    ++current->progress;
    if (r->check) check_pass(current->checker, r->check, w->live, c->passed);
    r->site = -1;
}

static void stuck(Warp* w, const uint32_t* at, const int* sites, int places)
{
    Runner* r = runner_of(w);
    char text[1024];
    int length = 0, first = -1;
    for (int i = 0; i < places && length < 900; ++i)
        if (at[i] && sites[i] >= 0) {
            if (first < 0) first = sites[i];
            length += snprintf(text + length, sizeof text - (size_t)length, " @%d:%08x", sites[i], at[i]);
        }
    text[length] = 0;
    report(current->launch, "divergence %d %u %u lanes of a warp wait for one another:%s", first, r->block->index, w->index, text);
    abandon(r);
}

static void trap(Warp* w, int site)
{
    Runner* r = runner_of(w);
    report(current->launch, "trap %d %u %u the kernel trapped", site, r->block->index, w->index);
    abandon(r);
}

static uint8_t* remote(Warp* w, uint32_t address, uint32_t size, int lane, int site)
{
    Runner* r = runner_of(w);
    Cluster* c = r->block->cluster;
    const uint32_t rank = (address >> 24) - 1, at = address & 0xffffff;
    if (rank >= c->count || at + size > w->total_shared) {
        report(current->launch, "bounds %d %u %u lane %d: shared memory of block %u of the cluster, offset %u", site,
               r->block->index, w->index, lane, rank, at);
        abandon(r);
    }
    return c->blocks[rank].memory + at;
}

static uint8_t* access(Warp* w, uint64_t address, uint32_t size, uint32_t what, int lane, int site)
{
    Runner* r = runner_of(w);
    Block* owner = r->block;
    Cluster* c = owner->cluster;
    const uint32_t space = what & 0xf00, rank = (uint32_t)address >> 24;
    if (space == CLUSTER) {
        if (rank > c->count) remote(w, (uint32_t)address, size, lane, site);
        if (rank) owner = &c->blocks[rank - 1];
        address &= 0xffffff, what = (what & 0xff) | SHARED;
    } else if (space == GENERIC) {
        for (uint32_t i = 0; i < c->count; ++i) {
            if (address - (uint64_t)c->blocks[i].memory >= w->total_shared) continue;
            owner = &c->blocks[i];
            address -= (uint64_t)owner->memory, what = (what & 0xff) | SHARED;
            break;
        }
    }
    if (owner != r->block) reach_cluster(current->checker);
    if (!owner->living) {
        report(current->launch, "bounds %d %u %u lane %d: shared memory of block %u, which has ended", site, r->block->index, w->index, lane,
               owner->index);
        abandon(r);
    }
    return check_access(current->checker, w, r->check, r->block->index, {owner->memory, owner->shadow}, address, size, what, lane, site);
}
static void sync(Warp* w, uint32_t lanes, int what, uint64_t object, int site)
{
    Runner* r = runner_of(w);
    check_sync(current->checker, w, r->check, r->block->index, lanes, what, object, site);
}
static void async(Warp* w, uint8_t* to, uint64_t at, const uint8_t* from, uint32_t size, uint32_t taken, int lane, int site)
{
    Runner* r = runner_of(w);
    check_async(current->checker, w, r->check, r->block->index, to, at, from, size, taken, lane, site);
}
static void async_group(Warp* w, int lane, int what, uint32_t count, uint64_t, int)
{
    Runner* r = runner_of(w);
    check_group(current->checker, w, r->check, r->block->index, lane, what, count);
}

static const Calls calls = {yield, barrier, cluster, stuck, trap, remote, access, sync, async, async_group};

// Blocks.

static void fiber_main(void* argument)
{
    Runner* r = (Runner*)argument;
    current->launch->kernel(&r->warp);
    r->state = ENDED;
    for (;;) pause(r);
}

static void split(uint32_t linear, const uint32_t* size, uint32_t* parts)
{
    parts[0] = linear % size[0];
    parts[1] = linear / size[0] % size[1];
    parts[2] = linear / size[0] / size[1];
}

static void begin_block(Worker* worker, Cluster* c, uint32_t rank, const uint32_t* ctaid)
{
    const Launch* launch = worker->launch;
    Block* block = &c->blocks[rank];
    const uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
    const uint32_t total = launch->shared_end + launch->dynamic_shared;
    *block = Block{};
    block->cluster = c;
    block->index = ctaid[0] + launch->grid[0] * (ctaid[1] + launch->grid[1] * ctaid[2]);
    block->memory = take_arena();
    memset(block->memory, 0xff, total);  // a NaN in most types: what was never written shows
    block->warps = block->living = (threads + 31) / 32;
    block->runners = (Runner*)calloc(block->warps, sizeof(Runner));
    if (worker->checker) block->shadow = new_shadow(0, total);
    for (uint32_t i = 0; i < block->warps; ++i) {
        Runner& r = block->runners[i];
        Warp& w = r.warp;
        r.block = block, r.state = READY, r.site = -1;
        if (worker->checker) {
            r.check = (CheckWarp*)calloc(1, sizeof(CheckWarp));
            begin_warp(worker->checker, r.check, block->index, i, block->shadow);
        }
        w.index = i, w.shared = block->memory, w.args = launch->args, w.calls = &calls;
        w.live = threads - 32 * i >= 32 ? 0xffffffffu : (1u << (threads - 32 * i)) - 1;
        for (uint32_t lane = 0; lane < 32; ++lane) {
            uint32_t place[3];
            split(32 * i + lane, launch->block, place);
            for (int d = 0; d < 3; ++d) w.tid[d][lane] = place[d];
        }
        for (int d = 0; d < 3; ++d) {
            w.ntid[d] = launch->block[d], w.nctaid[d] = launch->grid[d], w.ctaid[d] = ctaid[d];
            w.cluster_nctaid[d] = launch->cluster[d], w.cluster_ctaid[d] = ctaid[d] % launch->cluster[d];
            w.clusterid[d] = ctaid[d] / launch->cluster[d], w.nclusterid[d] = launch->grid[d] / launch->cluster[d];
        }
        w.cluster_rank = rank, w.cluster_size = c->count;
        w.dynamic_shared = launch->dynamic_shared, w.total_shared = total, w.progress = &worker->progress, w.polls = &worker->polls;
        r.stack = take_stack(launch->stack);
        start(&r.fiber, r.stack, (size_t)((worker->ring_count * 37 % 61) * 192), fiber_main, &r);
        push(worker->ring, worker->ring_count, worker->ring_room, &r);
    }
}

static bool begin_cluster(Worker* worker)
{
    const Launch* launch = worker->launch;
    const uint32_t number = __atomic_fetch_add(worker->next_unit, 1, __ATOMIC_RELAXED);
    if (number >= worker->units) return false;
    const uint32_t unit = worker->order ? worker->order[number] : number;
    const uint32_t* shape = launch->cluster;
    const uint32_t count = shape[0] * shape[1] * shape[2];
    uint32_t clusters[3], place[3];
    for (int d = 0; d < 3; ++d) clusters[d] = launch->grid[d] / shape[d];
    split(unit, clusters, place);
    Cluster* c = (Cluster*)calloc(1, sizeof(Cluster));
    c->blocks = (Block*)calloc(count, sizeof(Block));
    c->count = c->living = count;
    for (uint32_t rank = 0; rank < count; ++rank) {
        uint32_t within[3], ctaid[3];
        split(rank, shape, within);
        for (int d = 0; d < 3; ++d) ctaid[d] = place[d] * shape[d] + within[d];
        begin_block(worker, c, rank, ctaid);
    }
    c->next = worker->alive;
    worker->alive = c;
    return true;
}

static void end_cluster(Worker* worker, Cluster* c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < worker->ring_count; ++i)
        if (worker->ring[i]->block->cluster != c) worker->ring[kept++] = worker->ring[i];
    worker->ring_count = kept;
    for (Cluster** p = &worker->alive; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    for (uint32_t i = 0; i < c->count; ++i) {
        Block& block = c->blocks[i];
        for (uint32_t k = 0; k < block.warps; ++k) {
            give_stack(block.runners[k].stack);
            if (block.runners[k].check) end_warp(block.runners[k].check);
        }
        for (Barrier& b : block.barriers) free(b.gathered);
        if (block.shadow) free_shadow(block.shadow);
        give_arena(block.memory);
        free(block.runners);
    }
    free(c->gathered);
    free(c->passed);
    free(c->blocks);
    free(c);
}

static void ended(Runner* r)
{
    Block* block = r->block;
    ++current->progress;
    --block->living;
    for (uint32_t id = 0; id < BARRIERS; ++id)
        if (!block->barriers[id].fixed) settle(block, id);
    if (block->living == 0) --block->cluster->living;
}

static double seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void deadlock(Worker* worker, const char* kind)
{
    char text[2048];
    int length = 0, first = -1;
    for (uint32_t i = 0; i < worker->ring_count && length < 1900; ++i) {
        Runner* r = worker->ring[i];
        if (r->state == ENDED) continue;
        if (first < 0) first = r->site;
        length += snprintf(text + length, sizeof text - (size_t)length, " @%d:%u:%u", r->site, r->block->index, r->warp.index);
    }
    text[length] = 0;
    report(worker->launch, "deadlock %d 0 0 %s:%s", first, kind, text);
}

static const uint64_t PATIENCE = 1024;

static void work(Worker* worker)
{
    current = worker;
    const Launch* launch = worker->launch;
    uint64_t seen = 0;
    uint32_t idle = 0;
    double since = 0;
    while (!failed(launch)) {
        if (!worker->alive && !begin_cluster(worker)) break;
        bool ran = false;
        const uint32_t count = worker->ring_count;
        const uint32_t shift = launch->order == 2 ? (uint32_t)random_number(worker->random) % count : 0;
        for (uint32_t i = 0; i < count && !failed(launch); ++i) {
            uint32_t at = (i + shift) % count;
            if (launch->order == 1) at = count - 1 - i;
            if (launch->order == 2 && random_number(worker->random) & 1) at = (uint32_t)(random_number(worker->random) % count);
            Runner* r = worker->ring[at];
            if (r->state != READY) continue;
            ran = true;
            switch_to(&worker->home, &r->fiber);
            if (r->state == ENDED) ended(r);
        }
        for (Cluster *c = worker->alive, *next; c; c = next) {
            next = c->next;
            if (c->living == 0) end_cluster(worker, c), ran = true, ++worker->progress;
        }
        if (worker->progress != seen) {
            seen = worker->progress, idle = 0;
            // Who polls between barriers gets on, and yet may wait for a block that has not begun.
            if (worker->polls >= PATIENCE) worker->polls = 0, begin_cluster(worker);
            continue;
        }
        // Nobody got on. Let another cluster begin; when there is none left, wait for other workers, but not for ever.
        if (++idle < 3 && (ran || launch->order == 2)) continue;
        if (begin_cluster(worker)) {
            idle = 0;
            continue;
        }
        if (!ran && launch->order != 2) deadlock(worker, "every warp waits at a barrier");
        if (idle == 3) since = seconds();
        if ((idle & 1023) == 0) {
            if (launch->threads > 1) usleep(50);
            if (seconds() - since > launch->patience) deadlock(worker, "every warp waits, and nothing changes");
        }
    }
    while (worker->alive) {  // after a failure
        for (uint32_t i = 0; i < worker->ring_count; ++i) worker->ring[i]->state = ENDED;
        end_cluster(worker, worker->alive);
    }
    free(worker->ring);
    current = nullptr;
}

static void* work_on_thread(void* worker)
{
    work((Worker*)worker);
    return nullptr;
}

}  // namespace kg

extern "C" int kg_launch(const kg::Launch* launch)
{
    using namespace kg;
    launch->message[0] = 0;
    uint32_t units = 1, next = 0;
    for (int d = 0; d < 3; ++d) units *= launch->grid[d] / launch->cluster[d];
    uint32_t* order = nullptr;
    uint64_t state = launch->seed;
    if (launch->order) {
        order = (uint32_t*)malloc(sizeof(uint32_t) * units);
        for (uint32_t i = 0; i < units; ++i) order[i] = launch->order == 1 ? units - 1 - i : i;
        if (launch->order == 2)
            for (uint32_t i = units; i > 1; --i) {
                const uint32_t other = (uint32_t)(random_number(state) % i), kept = order[i - 1];
                order[i - 1] = order[other], order[other] = kept;
            }
    }
    Checker* checker = launch->check ? new_checker(launch) : nullptr;
    const uint32_t threads = checker ? 1 : launch->threads < units ? (launch->threads ? launch->threads : 1) : units;
    Worker workers[64];
    pthread_t handles[64];
    const uint32_t count = threads < 64 ? threads : 64;
    for (uint32_t i = 0; i < count; ++i) {
        workers[i] = Worker{};
        workers[i].launch = launch, workers[i].next_unit = &next, workers[i].units = units, workers[i].order = order;
        workers[i].random = launch->seed + i, workers[i].checker = checker;
    }
    bool begun[64] = {};
    for (uint32_t i = 1; i < count; ++i) begun[i] = pthread_create(&handles[i], nullptr, work_on_thread, &workers[i]) == 0;
    work(&workers[0]);
    for (uint32_t i = 1; i < count; ++i)
        if (begun[i]) pthread_join(handles[i], nullptr);
    free(order);
    if (!checker) return launch->message[0] != 0;
    const bool found = launch->check->log[0] != 0;
    free_checker(checker);
    return found || launch->message[0] != 0;
}
