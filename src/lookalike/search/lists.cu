// Hits of the scan, and the lists of keys they end up in.

// Gathers the flags of sums: that of x[8 i + j] goes to bit 8 (j % 4) + 2 i + j / 4.
template <int COUNT>
__device__ __forceinline__ u32 flags_of(const u32* x) {
    constexpr int FIRST = FLAG_BIT - 16;  // the flag's bit in the third byte of a sum
    u32 flags = 0;
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const u32 low = __byte_perm(x[4 * i], x[4 * i + 1], 0x62), high = __byte_perm(x[4 * i + 2], x[4 * i + 3], 0x62);
        const u32 four = __byte_perm(low, high, 0x5410);
        flags |= (i < FIRST ? four >> (FIRST - i) : four << (i - FIRST)) & 0x01010101u << i;
    }
    return flags;
}

__device__ __forceinline__ int place_of_flag(u32 bit) { return 8 * (bit >> 1 & 3) + 4 * (bit & 1) + (bit >> 3); }

// Returns whether the flag of any sum of any lane is set. One instruction takes two sums.
template <int COUNT>
__device__ __forceinline__ bool any_flag(const u32* x) {
    u32 any[2] = {};
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
#pragma unroll
        for (int j = 0; j < 2; ++j) any[j] = either(any[j], x[i + 2 * j], x[i + 2 * j + 1]);
    return __any_sync(ALL, (any[0] | any[1]) & FLAG);
}

struct Lists {
    Filters filters;
    i64* keys;
    u32* counts;
    i64 capacity;

    // Appends the entries of rows that the filters admit, ids or keys, and returns how many they do not. A list that runs
    // over keeps its count. Answers from memory are awaited once for all rows.
    template <int COUNT>
    __device__ __forceinline__ int append(
        const i64 (&rows)[COUNT], const i64 (&columns)[COUNT], const i64 (&entries)[COUNT], u32 valid) const {
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
            if (slots[i] < capacity) keys[rows[i] * capacity + slots[i]] = entries[i];
        return __popc(valid ^ kept);
    }
};

// Hits of a warp wait here until there are enough for all lanes, which then look them up in parallel. The queue counts as
// full with more than FULL.
template <class Place, int FULL>
struct Queue {
    Place* const places;
    u32 filled;

    // Takes one hit of each lane that has any, and calls it origin | bit << 5 | lane.
    __device__ __forceinline__ void take(u32& hits, u32 origin) {
        const u32 lane = threadIdx.x % 32, busy = __ballot_sync(ALL, hits != 0);
        if (hits) places[filled + __popc(busy & ((1u << lane) - 1))] = origin | (__ffs(hits) - 1) << 5 | lane;
        hits &= hits - 1;
        filled += __popc(busy);
    }

    // Takes a hit of each lane that has one.
    __device__ __forceinline__ void add(bool is_hit, Place place) {
        const u32 busy = __ballot_sync(ALL, is_hit);
        if (is_hit) places[filled + __popc(busy & ((1u << threadIdx.x % 32) - 1))] = place;
        filled += __popc(busy);
    }

    __device__ __forceinline__ bool full() const { return filled > FULL; }

    // Passes the hits on, up to COUNT per lane at a time. Which of them are valid, a bit for each says.
    template <int COUNT, class Look>
    __device__ __forceinline__ void empty(Look look) {
        __syncwarp();
        for (u32 from = threadIdx.x % 32; from - threadIdx.x % 32 < filled; from += 32 * COUNT) {
            Place hits[COUNT];
            u32 valid = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const bool is_hit = from + 32 * i < filled;
                hits[i] = is_hit ? places[from + 32 * i] : Place{};
                valid |= is_hit << i;
            }
            look(hits, valid);
        }
        __syncwarp();
        filled = 0;
    }
};
