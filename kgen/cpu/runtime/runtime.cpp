// The machine: blocks over threads of the host, one fiber for each warp, barriers, and a fair round-robin between them.
//
// A worker (a thread of the host) takes the next cluster of blocks and runs its warps in turn until all have ended.
// Where nobody gets on because all of them wait for blocks that have not begun, it takes one more: so blocks that wait
// for one another are all alive in the end, and no launch needs to say that it is cooperative.
#include "endless.h"
#include "listed.h"

namespace kg {

// Blocks.

static void fiber_main(void* argument)
{
    Runner* r = (Runner*)argument;
    run(&r->warp, *current->launch->list);
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
    block->arena = take_stack(SHARED_SPACE);
    block->memory = block->arena.base + block->arena.size - SHARED_SPACE;
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
        w.index = i, w.shared = block->memory, w.args = launch->args, w.calls = &calls, w.spare = &block->spare;
        w.variables = launch->list->variables;
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
        w.dynamic_shared = launch->dynamic_shared, w.total_shared = total;
        w.progress = &worker->progress, w.polls = &worker->polls;
        r.stack = take_stack(launch->stack);
        start(&r.fiber, r.stack, (size_t)((worker->ring_count * 37 % 61) * 192), fiber_main, &r);
        append(worker->ring, worker->ring_count, worker->ring_room, &r);
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
            if (block.runners[k].check) end_warp(worker->checker, block.runners[k].check);
        }
        for (Barrier& b : block.barriers) drop(worker->checker, b.gathered);
        if (block.shadow) free_shadow(block.shadow);
        give_stack(block.arena);
        free(block.runners);
    }
    drop(worker->checker, c->gathered);
    drop(worker->checker, c->passed);
    free(c->blocks);
    free(c);
}

static void ended(Runner* r)
{
    Block* block = r->block;
    ++current->progress;
    --block->living;
    if (r->check) check_ended(current->checker, r->check, block->index);
    for (uint32_t id = 0; id < BARRIERS; ++id)
        if (!block->barriers[id].fixed) settle(block, id);
    if (block->living == 0) --block->cluster->living;
}

static void deadlock(Worker* worker, const char* kind)
{
    char text[2048];
    int length = 0, first = -1;
    for (uint32_t i = 0; i < worker->ring_count && length < 1900; ++i) {
        Runner* r = worker->ring[i];
        if (r->state == ENDED) continue;
        if (first < 0) first = r->site;
        const size_t left = sizeof text - (size_t)length;
        length += snprintf(text + length, left, " @%d:%u:%u", r->site, r->block->index, r->warp.index);
    }
    text[length] = 0;
    report(worker->launch, "deadlock %d 0 0 %s:%s", first, kind, text);
}

static const uint64_t PATIENCE = 1024;
static const uint32_t ROUNDS = 4096;  // without progress: who only tests a barrier may do something else meanwhile

static void work(Worker* worker)
{
    current = worker;
    const Launch* launch = worker->launch;
    clockwork.wind(3 * launch->patience);
    uint64_t seen = 0, looked = 0;
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
            if (launch->order == 2 && random_number(worker->random) & 1)
                at = (uint32_t)(random_number(worker->random) % count);
            Runner* r = worker->ring[at];
            if (r->state != READY) continue;
            ran = true;
            worker->running = r, ++worker->switches;
            switch_to(&worker->home, &r->fiber);
            worker->running = nullptr;
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
            looked = worker->polls;
            continue;
        }
        // Nobody got on, and where nobody looks at what other clusters write, nobody will.
        ++idle;
        if (worker->polls == looked && (idle == ROUNDS || !(ran || launch->order == 2)))
            deadlock(worker, ran ? "every warp waits, and nothing changes" : "every warp waits at a barrier");
        // Let another cluster begin; when there is none left, wait for other workers, but not for ever.
        if (worker->polls == looked || idle < 3) continue;
        if (begin_cluster(worker)) {
            idle = 0;
            continue;
        }
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
    free(worker->values);
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
    for (uint32_t i = 1; i < count; ++i)
        begun[i] = pthread_create(&handles[i], nullptr, work_on_thread, &workers[i]) == 0;
    work(&workers[0]);
    for (uint32_t i = 1; i < count; ++i)
        if (begun[i]) pthread_join(handles[i], nullptr);
    free(order);
    if (!checker) return launch->message[0] != 0;
    free_checker(checker);
    return launch->check->log[0] != 0 || launch->message[0] != 0;
}
