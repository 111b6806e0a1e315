// What a translated kernel sees of the machine: its warp, memory, barriers, and calls into the runtime.
#pragma once
#include "value.h"

namespace kg {

struct Warp;

#ifdef KG_CHECKED
enum { CHECKED = 1 };
#else
enum { CHECKED = 0 };
#endif

// A product of fragments: `which` says in which rows of the frame the operands lie; returns how many they are.
typedef int Product(uint32_t (*rows)[32], const int32_t* which);

// What the runtime does for a kernel; a table of pointers, so that a kernel's library needs no symbol of another.
struct Calls {
    void (*yield)(Warp*, int site);                                               // let others run; nothing was found
    uint32_t (*barrier)(Warp*, uint32_t id, uint32_t count, int kind, uint32_t votes, uint32_t present, int site);
    void (*cluster)(Warp*, int kind, int site);
    void (*stuck)(Warp*, const uint32_t* at, const int* sites, int places);       // no lane can go on: does not return
    void (*trap)(Warp*, int site);
    uint8_t* (*remote)(Warp*, uint32_t address, uint32_t size, int lane, int site);  // shared memory of another block
    uint8_t* (*access)(Warp*, uint64_t address, uint32_t size, uint32_t what, int lane, int site);
    // A run of instructions on fragments: of each a product's number, and the rows of its operands; or of ldmatrix and
    // stmatrix -1, the number of tiles, what is done with them, the addresses' offset, the site, and the rows of
    // addresses and tiles.
    void (*fragments)(Warp*, uint32_t (*rows)[32], Product* const* products, const int32_t* run, const int32_t* end);
    void (*sync)(Warp*, uint32_t lanes, int what, uint64_t object, int site);
    void (*async)(
        Warp*, uint8_t* to, uint64_t at, const uint8_t* from, uint32_t size, uint32_t taken, int lane, int site);
    void (*async_group)(Warp*, int lane, bool wait, uint32_t groups);
};

struct Warp {
    uint32_t live;  // lanes that have not ended
    uint32_t index;
    uint8_t* shared;  // of its block; an address in shared memory counts from here
    const uint8_t* args;
    const uint64_t* variables;  // where those in global and constant memory lie
    const Calls* calls;
    uint32_t tid[3][32], ntid[3], ctaid[3], nctaid[3];
    uint32_t cluster_ctaid[3], cluster_nctaid[3], clusterid[3], nclusterid[3], cluster_rank, cluster_size;
    uint32_t dynamic_shared, total_shared;
    uint64_t* progress;  // counts what may let a waiting warp go on
    uint64_t* polls;     // and this, how often one looked in vain at what other clusters may write
    int32_t* spare;      // registers of each lane that warps of its block gave back
    int32_t registers;   // of its lanes, once setmaxnreg has set them
    uint8_t* local;      // of its lanes, where the kernel has local memory
    uint32_t local_size;
    const int* loops;    // pairs of a place and where a loop in it begins, then -1
    int place;           // where its lanes are
};

#define KG_LANES(mask) for (uint32_t m = (mask); m; m &= m - 1)

// Memory: where an access of `size` bytes goes. Addresses in shared memory are 32-bit offsets, all others host
// pointers. PLACE: only asks where
enum { READ = 1, WRITE = 2, ATOMIC = 4, ACQUIRE = 8, RELEASE = 16, RELAXED = 32, ASYNC = 64, PLACE = 128 };
enum { TRANSPOSED = 4 };  // beside READ or WRITE of tiles
enum { GLOBAL = 0 << 8, SHARED = 1 << 8, LOCAL = 2 << 8, GENERIC = 3 << 8, CLUSTER = 4 << 8, PARAM = 5 << 8 };

// What a kernel tells of its order: of a mask's lanes, a fence, an mbarrier (arrived at, waited for, made, its phase
// over), a lane that takes part with one which does not, and bytes of a st.async that have come.
enum Told { WARP_SYNC, FENCE, ARRIVE, WAITED, INIT, PHASE, ASTRAY, ASYNC_DONE };

template <int SPACE>
static inline uint8_t* at(Warp* w, uint64_t address, uint32_t size, uint32_t what, int lane, int site)
{
    if (CHECKED) return w->calls->access(w, address, size, SPACE | what, lane, site);
    if (SPACE == SHARED) return w->shared + (uint32_t)address;
    if (SPACE == CLUSTER && (uint32_t)address >> 24) return w->calls->remote(w, (uint32_t)address, size, lane, site);
    if (SPACE == CLUSTER) return w->shared + (uint32_t)address;
    return (uint8_t*)address;
}

template <class T> static inline T load(const uint8_t* p)
{
    T x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
template <class T> static inline void store(uint8_t* p, T x) { __builtin_memcpy(p, &x, sizeof x); }

// .volatile, .relaxed and what is stronger: in one piece, and as often as the kernel says. Order is left to fences.
template <class T> static inline T load_strong(const uint8_t* p)
{
    T x;
    __atomic_load((T*)p, &x, __ATOMIC_RELAXED);
    return x;
}
template <class T> static inline void store_strong(uint8_t* p, T x) { __atomic_store((T*)p, &x, __ATOMIC_RELAXED); }

// Read-modify-write; blocks on other threads of the host may do the same at the same time.
template <class T, class F> static inline T atomic(uint8_t* p, F change)
{
    T old = load<T>(p), wanted;
    do wanted = change(old);
    while (!__atomic_compare_exchange((T*)p, &old, &wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T>
static inline T atomic_add(uint8_t* p, T x)
{
    return __atomic_fetch_add((T*)p, x, __ATOMIC_SEQ_CST);
}

// setmaxnreg: whether the warp has so many registers now. More than it has come from what warps of its block gave back.
static inline bool set_registers(Warp* w, int32_t wanted, int32_t launched)
{
    const int32_t more = wanted - (w->registers ? w->registers : launched);
    if (more > *w->spare) return false;
    *w->spare -= more, w->registers = wanted;
    ++*w->progress;
    return true;
}

// Warp operations. `group` holds the lanes that take part.
static inline int shuffle_source(int kind, int lane, uint32_t b, uint32_t c, bool* valid)
{
    int clamp = c & 31, segment = c >> 8 & 31, offset = b & 31, from;
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    if (kind == 0) from = lane - offset, *valid = from >= last;           // up
    else if (kind == 1) from = lane + offset, *valid = from <= last;      // down
    else if (kind == 2) from = lane ^ offset, *valid = from <= last;      // bfly
    else from = first | (offset & ~segment), *valid = from <= last;       // idx
    return *valid ? from : lane;
}

}  // namespace kg
