// Hits of the scan, and the lists of keys they end up in.

constexpr int MISSED = 0, KEPT = 1, REFUSED = 2;  // beyond the limit, on a list, left out by the filters

struct Lists {
    const u32 *queries, *reference;
    const i64* keys_up_to;
    Filters filters;
    i64* keys;
    u32* counts;
    i64 capacity;

    __device__ int offer(i64 row, i64 column) const {
        const i64 key = key_of(distance(queries + row * WORDS, reference + column * WORDS), column);
        if (key > keys_up_to[row]) return MISSED;
        if (!filters.admit(row, column)) return REFUSED;
        const u32 slot = atomicAdd(counts + row, 1u);
        if (slot < capacity) keys[row * capacity + slot] = key;
        return KEPT;
    }
};

// Hits of a warp wait here until there are enough for all lanes, which then look them up in parallel.
struct Queue {
    u32* const places;
    u32 filled;

    // Takes one hit of each lane that has any, from the lowest bit of `hits`, and returns whether any lane had.
    __device__ __forceinline__ bool take(u32& hits, u32 origin) {
        const u32 lane = threadIdx.x % 32, busy = __ballot_sync(ALL, hits != 0);
        if (hits) places[filled + __popc(busy & ((1u << lane) - 1))] = origin | (__ffs(hits) - 1) << 5 | lane;
        hits &= hits - 1;
        filled += __popc(busy);
        return busy != 0;
    }

    __device__ __forceinline__ bool full() const { return filled > QUEUE - 32; }

    template <class Look>
    __device__ __forceinline__ void empty(Look look) {
        __syncwarp();
        for (u32 i = threadIdx.x % 32; i < filled; i += 32) look(places[i]);
        __syncwarp();
        filled = 0;
    }
};
