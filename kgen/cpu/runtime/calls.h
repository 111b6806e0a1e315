// What a kernel calls: barriers, other blocks' shared memory, and, where it is checked, every access.
#pragma once
#include "checks.h"
#include "ops/matrix.h"

namespace kg {

// Control between the worker and its fibers.

static void pause(Runner* r) { switch_to(&r->fiber, &current->home); }

// The launch has failed at a site; nobody comes back to this fiber.
static void fail(Runner* r, const char* kind, int site, const char* format, ...)
{
    char text[1200];
    va_list given;
    va_start(given, format);
    vsnprintf(text, sizeof text, format, given);
    va_end(given);
    report(current->launch, "%s %d %u %u %s", kind, site, r->block->index, r->warp.index, text);
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
    drop(current->checker, b.gathered);
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
    if (id >= BARRIERS) fail(r, "barrier", site, "there are %d barriers, and this is number %u", (int)BARRIERS, id);
    if (count % 32) fail(r, "barrier", site, "barrier %u is for %u threads, which are no whole warps", id, count);
    Barrier& b = block->barriers[id];
    if (b.arrived && (b.fixed != (count != 0) || (b.fixed && b.expected != count / 32)))
        fail(r, "barrier", site, "barrier %u is used with different numbers of threads", id);
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
    drop(current->checker, c->passed);
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
    char text[1024];
    int length = 0, first = -1;
    for (int i = 0; i < places && length < 900; ++i)
        if (at[i] && sites[i] >= 0) {
            if (first < 0) first = sites[i];
            length += snprintf(text + length, sizeof text - (size_t)length, " @%d:%08x", sites[i], at[i]);
        }
    text[length] = 0;
    fail(runner_of(w), "divergence", first, "lanes of a warp wait for one another:%s", text);
}

static void trap(Warp* w, int site) { fail(runner_of(w), "trap", site, "the kernel trapped"); }

static uint8_t* remote(Warp* w, uint32_t address, uint32_t size, int lane, int site)
{
    Runner* r = runner_of(w);
    Cluster* c = r->block->cluster;
    const uint32_t rank = (address >> 24) - 1, at = address & 0xffffff;
    if (rank >= c->count || at + size > w->total_shared)
        fail(r, "bounds", site, "lane %d: shared memory of block %u of the cluster, offset %u", lane, rank, at);
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
    if (!owner->living)
        fail(r, "bounds", site, "lane %d: shared memory of block %u, which has ended", lane, owner->index);
    return check_access(r, owner, address, size, what, lane, site);
}

// ldmatrix and stmatrix: eight lanes give the addresses of a tile's rows, but an access is that of the lane which holds
// the element. Of transposed tiles each lane reads half a word; the other half is another lane's, so the word stands
// for both.
static void tiles(Warp* w, uint32_t (*rows)[32], const int32_t* which, int tiles, int how, int offset, int site)
{
    const bool transposed = how & TRANSPOSED;
    const int what = how & (READ | WRITE);
    uint32_t* held[4];
    uint8_t* row[32];
    for (int tile = 0; tile < tiles; ++tile) held[tile] = rows[which[1 + tile]];
    for (int i = 0; i < 8 * tiles; ++i) {
        const uint32_t address = rows[which[0]][i] + (uint32_t)offset;
        row[i] = w->shared + address;
        if (!runner_of(w)->check) continue;
        row[i] = access(w, address, 16, SHARED | what | PLACE, i, site);
        const int size = transposed && what == WRITE ? 2 : 4;
        for (int at = 0; at < 16; at += size)
            for (int half = 0; half < (transposed ? size / 2 : 1); ++half) {
                const int lane = transposed ? (at / 2 + half) * 4 + i % 8 / 2 : i % 8 * 4 + at / 4;
                access(w, address + (uint32_t)at, (uint32_t)size, SHARED | what, lane, site);
            }
    }
    if (what == READ) (transposed ? load_tiles<true> : load_tiles<false>)(held, row, tiles);
    else (transposed ? store_tiles<true> : store_tiles<false>)(row, held, tiles);
}
static void fragments(Warp* w, uint32_t (*rows)[32], Product* const* products, const int32_t* run, const int32_t* end)
{
    while (run < end) {
        if (*run >= 0) {
            run += 1 + products[*run](rows, run + 1);
        } else {
            tiles(w, rows, run + 5, run[1], run[2], run[3], run[4]);
            run += 6 + run[1];
        }
    }
}
static const Calls calls = {yield, barrier, cluster, stuck, trap, remote, access, fragments, sync, async, async_group};

}  // namespace kg
