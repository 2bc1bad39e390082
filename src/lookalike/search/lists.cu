// Hits of the scan, and the lists of keys they end up in.

struct Lists {
    Filters filters;
    i64* keys;
    u32* counts;
    i64 capacity;

    // Appends ids of rows that the filters admit, and returns how many they do not. A list that runs over keeps its
    // count. Answers from memory are awaited once for all ids.
    template <int COUNT>
    __device__ __forceinline__ int append(const i64 (&rows)[COUNT], const i64 (&columns)[COUNT], u32 valid) const {
        u32 kept = valid, slots[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (filters.shares_label(rows[i], columns[i])) kept &= ~(1u << i);
        if (filters.exclude_offsets)
            for (int i = 0; i < COUNT; ++i)
                if (kept >> i & 1 && filters.is_listed(rows[i], columns[i])) kept &= ~(1u << i);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) slots[i] = kept >> i & 1 ? atomicAdd(counts + rows[i], 1u) : ALL;
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (slots[i] < capacity) keys[rows[i] * capacity + slots[i]] = columns[i];
        return __popc(valid ^ kept);
    }
};

// Hits of a warp wait here until there are enough for all lanes, which then look them up in parallel.
struct Queue {
    u32* const places;
    u32 filled;

    // Takes one hit of each lane that has any, and calls it origin | bit << 5 | lane.
    __device__ __forceinline__ void take(u32& hits, u32 origin) {
        const u32 lane = threadIdx.x % 32, busy = __ballot_sync(ALL, hits != 0);
        if (hits) places[filled + __popc(busy & ((1u << lane) - 1))] = origin | (__ffs(hits) - 1) << 5 | lane;
        hits &= hits - 1;
        filled += __popc(busy);
    }

    __device__ __forceinline__ bool full() const { return filled > QUEUE - 32; }

    // Passes the hits on, up to COUNT per lane at a time. Which of them are valid, a bit for each says.
    template <int COUNT, class Look>
    __device__ __forceinline__ void empty(Look look) {
        __syncwarp();
        for (u32 from = threadIdx.x % 32; from - threadIdx.x % 32 < filled; from += 32 * COUNT) {
            u32 hits[COUNT], valid = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const bool is_hit = from + 32 * i < filled;
                hits[i] = is_hit ? places[from + 32 * i] : 0;
                valid |= is_hit << i;
            }
            look(hits, valid);
        }
        __syncwarp();
        filled = 0;
    }
};
