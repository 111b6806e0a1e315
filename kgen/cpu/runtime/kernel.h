// Included by all shapes: the operations of a warp.
#pragma once
#include "warp.h"

namespace kg {

// An operand that is the same in every lane, or computed.
template <class T> struct Same {
    T x;
    T operator[](int) const { return x; }
};
template <class F> struct ByLane {
    F f;
    auto operator[](int lane) const { return f(lane); }
};
template <class F> static inline ByLane<F> by_lane(F f) { return {f}; }

// What orders memory (see Told); only a checked kernel tells the runtime.
static inline void tell(Warp* w, uint32_t lanes, int what, const uint8_t* object, int site)
{
    if (CHECKED) w->calls->sync(w, lanes, what, (uint64_t)object, site);
}
template <int KIND, class A, class B, class C>
static void shuffle(Warp* w, uint32_t group, uint32_t* d, bool* p, A a, B b, C c, int site)
{
    uint32_t x[32], y[32];
    bool valid[32];
    KG_LANES(group) x[__builtin_ctz(m)] = a[__builtin_ctz(m)];
    KG_LANES(group) {
        const int l = __builtin_ctz(m), from = shuffle_source(KIND, l, b[l], c[l], &valid[l]);
        if (!(group >> from & 1)) {
            x[from] = x[l];  // undefined
            tell(w, 1u << l, ASTRAY, (const uint8_t*)(uint64_t)(1u << from), site);
        }
        y[l] = x[from];
    }
    if (d) KG_LANES(group) d[__builtin_ctz(m)] = y[__builtin_ctz(m)];
    if (p) KG_LANES(group) p[__builtin_ctz(m)] = valid[__builtin_ctz(m)];
}

template <bool ALL, class A> static void match(uint32_t group, uint32_t* d, bool* p, A a)
{
    uint32_t same[32];
    KG_LANES(group) {
        const int l = __builtin_ctz(m);
        same[l] = 0;
        for (uint32_t rest = group; rest; rest &= rest - 1)
            if (a[__builtin_ctz(rest)] == a[l]) same[l] |= rest & -rest;
    }
    KG_LANES(group) {
        const int l = __builtin_ctz(m);
        if (d) d[l] = !ALL || same[l] == group ? same[l] : 0;
        if (p) p[l] = same[l] == group;
    }
}

// Addresses. A generic one is the host's; one in another block's shared memory has that block's rank + 1 in its high
// byte.
template <int SPACE> static inline uint64_t from_shared(Warp* w, uint32_t address, int lane, int site)
{
    const bool other = SPACE == CLUSTER && address >> 24;
    return (uint64_t)(other ? w->calls->remote(w, address, 1, lane, site) : w->shared + address);
}
static inline uint64_t to_shared(Warp* w, uint64_t address) { return address - (uint64_t)w->shared; }
static inline uint32_t map_shared(uint32_t address, uint32_t rank) { return (address & 0xffffff) | (rank + 1) << 24; }
static inline uint32_t rank_of(Warp* w, uint32_t address)
{
    return address >> 24 ? (address >> 24) - 1 : w->cluster_rank;
}
static inline bool is_shared(Warp* w, uint64_t address) { return address - (uint64_t)w->shared < (1u << 24); }
static inline bool is_local(Warp* w, uint64_t address) { return address - (uint64_t)w->local < 32ull * w->local_size; }
static inline bool is_global(Warp* w, uint64_t address) { return !is_shared(w, address) && !is_local(w, address); }
static inline bool is_param(Warp* w, uint64_t address) { return address - (uint64_t)w->args < 4096; }
static inline bool is_const(Warp*, uint64_t) { return false; }

// After a look at memory that another cluster may write.
static inline bool looked(Warp* w) { return ++*w->polls, false; }

static inline void warp_sync(Warp* w, uint32_t group, int site) { tell(w, group, WARP_SYNC, nullptr, site); }
static inline void fence(Warp* w, int lane, int site)
{
    // blocks run on several threads of the host, which may reorder what they do
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    tell(w, 1u << lane, FENCE, nullptr, site);
}

// An mbarrier is 64 bits in shared memory, in a form of our own: arrivals that this phase still waits for, arrivals of
// a phase, the phase's parity, bytes in flight.
static inline uint64_t mbarrier_pack(uint32_t pending, uint32_t count, uint32_t parity, int32_t bytes)
{
    return (uint64_t)(pending & 0xfffff) | (uint64_t)(count & 0xfffff) << 20 | (uint64_t)(parity & 1) << 40
         | (uint64_t)((uint32_t)bytes & 0x7fffff) << 41;
}
static inline uint32_t mbarrier_parity(uint64_t state) { return state >> 40 & 1; }
static inline void mbarrier_init(Warp* w, uint8_t* p, uint32_t count, int lane, int site)
{
    store<uint64_t>(p, mbarrier_pack(count, count, 0, 0));
    tell(w, 1u << lane, INIT, p, site);
}
// `arrivals` threads arrive, and `more` bytes are awaited (fewer, where some came in); the state before.
static inline uint64_t mbarrier_update(
    Warp* w, uint8_t* p, uint32_t arrivals, int32_t more, bool drop, int lane, int site)
{
    if (arrivals) tell(w, 1u << lane, ARRIVE, p, site);
    const uint64_t old = load<uint64_t>(p);
    uint32_t pending = (old & 0xfffff) - arrivals, count = old >> 20 & 0xfffff, parity = mbarrier_parity(old);
    const int32_t bytes = ((int32_t)((uint32_t)(old >> 41) << 9) >> 9) + more;
    if (drop) count -= arrivals;
    const bool over = (pending & 0xfffff) == 0 && bytes == 0;
    if (over) pending = count, parity ^= 1;
    store<uint64_t>(p, mbarrier_pack(pending, count, parity, bytes));
    ++*w->progress;
    if (over) tell(w, 1u << lane, PHASE, p, site);
    return old;
}
static inline bool mbarrier_over(Warp* w, uint8_t* p, uint32_t parity, int lane, int site)
{
    bool over = mbarrier_parity(load<uint64_t>(p)) != parity;
    if (over) tell(w, 1u << lane, WAITED, p, site), ++*w->progress;
    return over;
}

// The bytes of a st.async, which is done at once, have come.
static inline void async_stored(Warp* w, uint8_t* p, uint32_t bytes, int lane, int site)
{
    tell(w, 1u << lane, ASYNC_DONE, p, site);
    mbarrier_update(w, p, 0, -(int32_t)bytes, false, lane, site);
}

// cp.async, in a kernel that is not checked, is done at once.
static inline void async_copy(Warp* w, int lane, uint32_t to, uint64_t from, uint32_t size, uint32_t taken, int site)
{
    uint8_t* p = at<SHARED>(w, to, size, WRITE, lane, site);
    const uint8_t* q = taken ? at<GLOBAL>(w, from, taken, READ, lane, site) : nullptr;
    if (CHECKED) return w->calls->async(w, p, to, q, size, taken, lane, site);
    for (uint32_t i = 0; i < size; ++i) p[i] = i < taken ? q[i] : 0;
}
// Closes a group of copies, or waits until no more than so many groups are under way; -1: no copy at all.
static inline void async_group(Warp* w, int lane, bool wait, int groups)
{
    if (CHECKED) w->calls->async_group(w, lane, wait, (uint32_t)groups);
}
static inline void async_arrive(Warp* w, int lane, uint32_t address, bool noinc, int site)
{
    uint8_t* p = at<SHARED>(w, address, 8, ATOMIC | READ | WRITE, lane, site);
    async_group(w, lane, true, -1);
    if (noinc) mbarrier_update(w, p, 1, 0, false, lane, site);
}

}  // namespace kg
