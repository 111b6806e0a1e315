// The checks of a launch: who may access what, and what orders two accesses. One worker, so nothing here is locked.
//
// Order is kept by vector clocks, after FastTrack (Flanagan, Freund 2009). Every access bears its thread and the time
// of its warp's last synchronization. What thread t knows of thread u's past is the latest of: `floor`, for all of its
// block, by barriers; `warp_floor`, for its warp, by __syncwarp; `known[u]`, by mbarriers, named barriers, flags with
// fences. Behind its threads a block has one id more, of its asynchronous stores: only the mbarrier that counts them
// tells of them. It tells no more of what their thread wrote before. But that thread's reads, and those it knew of, are
// over by then, and places that were read may be written again: so a clock has a second half, of times up to which
// reads are over.
#pragma once
#include "launch.h"

namespace kg {

struct Area {  // of shared memory, offsets; or a buffer in global memory, host addresses
    uint64_t base, size;
    uint8_t* written;  // a byte for each, 0 where nobody wrote; null: all are written
    uint32_t writable;
};

struct Check {  // as Python fills it in (check.py has the same fields)
    const Area* buffers;
    uint32_t buffer_count;
    const Area* areas;
    uint32_t area_count;
    char* log;
    uint32_t log_size;
    uint32_t most;  // reports, after which a launch stops
};

typedef struct Rows* Clock;  // a time for each thread of the grid, and a time for its reads; null: none of any
// What a thread knows, or knew: by its clock, of its block, of its warp, and until when of itself.
struct Past {
    Clock known;
    uint32_t floor, warp_floor, now;
};

struct Cell {
    uint32_t writer, written, write_site;  // written: the time, 0 where nobody did
    uint32_t reader, read, read_site;
    uint32_t more;   // further readers, an index into Checker::more; 0: none
    uint16_t flags;  // of the write
    uint16_t initialised;
};
enum { STRONG = 1, IN_FLIGHT = 2, SAME = 4 };  // SAME: lanes of a warp wrote it at once; `reader` holds the value

struct Shadow {  // of a stretch of memory: a cell for each 4 bytes, or, once somebody accessed less, for each byte
    uint64_t base, size;
    Cell* words;
    Cell* bytes;
    uint8_t* split;
};

struct Reader {
    uint32_t warp, lanes, time, site;
};
struct Readers {
    Reader* items;
    uint32_t count, room;
};

struct CheckThread {
    uint32_t floor, warp_floor;
    Clock known, pending;  // pending: read by a relaxed load, known after a fence
    Past released;         // what it knew at the last fence
};

struct Flight {  // a cp.async that has not been waited for
    uint8_t *to, data[16];
    uint64_t address;
    uint32_t size, group, site;
};
struct Flights {
    Flight* items;
    uint32_t count, room, group;
};

struct CheckWarp {
    uint32_t now, id;  // id of lane 0
    Shadow* shared;
    CheckThread threads[32];
    Flights flights[32];
};

struct Object {  // what threads synchronize by: a word in memory
    uint64_t address;
    Clock past, phase;
};

struct Checker {
    const Launch* launch;
    const Check* input;
    uint32_t time, threads, blocks, per_block, per_cluster;  // threads: ids in the grid
    uint32_t stores;                                 // the id, within its block, of asynchronous stores
    uint32_t reach;  // ids among which threads have synchronized: blocks, clusters, or the grid
    Shadow** buffers;  // null where nobody writes
    Readers* more;
    uint32_t more_count, more_room;
    Object* objects;
    uint32_t object_count, object_room;
    uint64_t* seen;
    uint32_t seen_count, seen_room, log_used;
    uint8_t* sink;
};

}  // namespace kg
