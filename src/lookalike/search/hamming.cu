// Products of codes on binary tensor cores (sm_80 and later), and the scan of the reference.

// Lane t of four holds LOAD words of every 4 * LOAD of a code. The order of bits within a product is free as long as
// both operands agree, so each lane takes what one wide load returns and codes keep their natural layout.
constexpr int LOAD = COMPLEMENT ? 1 : WORDS % 16 ? 2 : 4;

__device__ __forceinline__ void load_part(u32 (&part)[2 * SLICES], const u32* code) {
    if constexpr (LOAD == 1) {
        part[0] = __ldg(code);
        part[1] = ~part[0];
    } else {
#pragma unroll
        for (int w = 0; w < 2 * SLICES; w += LOAD) {
            if constexpr (LOAD == 2) {
                const uint2 words = __ldg(reinterpret_cast<const uint2*>(code + 4 * w));
                part[w] = words.x, part[w + 1] = words.y;
            } else {
                const uint4 words = __ldg(reinterpret_cast<const uint4*>(code + 4 * w));
                part[w] = words.x, part[w + 1] = words.y, part[w + 2] = words.z, part[w + 3] = words.w;
            }
        }
    }
}

// Returns the value in a way that the compiler cannot recompute, so that it stays in a register of its own. Operands of
// a product are four consecutive registers, and refilling them in every step costs more than the product.
__device__ __forceinline__ u32 pinned(u32 value) { return __shfl_sync(ALL, value, threadIdx.x % 32); }

// Hides the terms of a pointer from the compiler, which would otherwise add them up again in every step.
__device__ __forceinline__ const int* whole(const int* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// Loads sixteen queries per tile as left operands: a lane holds rows g and g + 8. Rows past the end repeat the last.
__device__ __forceinline__ void load_rows(u32 (&a)[TILES][SLICES][4], const u32* queries, i64 first, i64 end) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < TILES; ++m) {
        u32 upper[2 * SLICES], lower[2 * SLICES];
        const i64 row = first + 16 * m + g;
        load_part(upper, queries + min(row, end - 1) * WORDS + LOAD * t);
        load_part(lower, queries + min(row + 8, end - 1) * WORDS + LOAD * t);
#pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            a[m][s][0] = upper[2 * s], a[m][s][1] = lower[2 * s];
            a[m][s][2] = COMPLEMENT ? pinned(upper[1]) : upper[2 * s + 1];
            a[m][s][3] = COMPLEMENT ? pinned(lower[1]) : lower[2 * s + 1];
        }
    }
}

// sum[0..1]: row g, columns 2t and 2t + 1; sum[2..3]: row g + 8. XOR is emulated on Hopper, AND is not.
__device__ __forceinline__ void multiply_add(int (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_all(
    int (&sums)[TILES][4], const u32 (&a)[TILES][SLICES][4], const u32 (&b)[2 * SLICES]) {
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
        for (int m = 0; m < TILES; ++m) multiply_add(sums[m], a[m][s], b[2 * s], b[2 * s + 1]);
}

extern "C" __global__ void weigh(const u32* codes, int* weights, i64 n) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0;
#pragma unroll 4
    for (int w = 0; w < WORDS; w += 4) {
        const uint4 p = __ldg(reinterpret_cast<const uint4*>(codes + i * WORDS + w));
        sum += __popc(p.x) + __popc(p.y) + __popc(p.z) + __popc(p.w);
    }
    weights[i] = sum;
}

constexpr int CHUNK = 2048;  // columns between two reads of the limits
constexpr int NEVER = -(1 << 28);
constexpr int HIT_COST = 256;  // exact thresholds for this many pairs cost as much as one needless hit

template <bool VALUE>
struct Choice {
    static constexpr bool value = VALUE;
};

// Sums start where they become non-negative for rows up to the limit: at half of limit - weight(x) - weight(y), because
// h = weight(x) + weight(y) - 2 and(x, y). Halving the parts of row and column separately takes one addition per pair,
// but rounding lets some rows pass that are one farther; halving their sum is exact and takes one more shift.
template <bool EXACT>
__device__ __forceinline__ int start_of(i64 limit, int weight, i64 chunk) {
    const int ties = id_of(limit) >= chunk ? 0 : 1;  // from here on, rows at the limit's distance come after it
    const int h = min(distance_of(limit), BITS) - ties;
    if (COMPLEMENT) return h - BITS;
    return EXACT ? h - weight : (h - weight + 1) >> 1;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) filter(
    const u32* __restrict__ queries, const u32* __restrict__ reference, const int* __restrict__ query_weights,
    const int* __restrict__ weights, const int* __restrict__ halves, const i64* __restrict__ keys_up_to,
    const i64* query_labels, const i64* reference_labels, const i64* exclude_offsets, const i64* exclude_ids, i64* keys,
    u32* counts, i64 num_queries, i64 num_references, i64 capacity, i64 span) {
    __shared__ u32 queues[WARPS][QUEUE];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32* const queue = queues[threadIdx.x / 32];
    const i64 first = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    if (first >= num_queries) return;
    const i64 begin = (i64)blockIdx.y * span, end = min(begin + span, num_references);
    const Filters filters = {query_labels, reference_labels, exclude_offsets, exclude_ids};
    u32 a[TILES][SLICES][4];
    load_rows(a, queries, first, num_queries);
    u32 filled = 0, needless = 0;  // queued hits; hits of this lane that passed by rounding only

    // Hits are queued until there are enough for all lanes, which then look up distances and labels in parallel.
    auto flush = [&]() {
        __syncwarp();
        for (u32 i = lane; i < filled; i += 32) {
            const u32 hit = queue[i], element = hit >> 5 & 31, owner = hit & 31;
            const i64 row = first + 16 * (element / 4) + owner / 4 + 8 * (element / 2 % 2);
            const i64 column = begin + 8ll * (hit >> 10) + 2 * (owner % 4) + element % 2;
            if (column >= num_references) continue;
            const i64 key = key_of(distance(queries + row * WORDS, reference + column * WORDS), column);
            if (key > keys_up_to[row]) {
                ++needless;
                continue;
            }
            if (!filters.admit(row, column)) continue;
            const u32 slot = atomicAdd(counts + row, 1u);
            if (slot < capacity) keys[row * capacity + slot] = key;
        }
        __syncwarp();
        filled = 0;
    };

    auto exact_pays = [&](i64 seen) {
        return (i64)__reduce_add_sync(ALL, needless) * HIT_COST > (seen - begin) * ROWS;
    };

    // Scans a chunk and returns the column to continue from. Stops early once exact thresholds pay: where codes repeat,
    // many rows lie at the limit's distance, and rounding lets them pass although their ids come after the limit's.
    auto scan = [&](i64 chunk, auto choice) {
        constexpr bool EXACT = decltype(choice)::value;
        int starts[TILES][COMPLEMENT ? 4 : 2];
#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const i64 row = first + 16 * m + g + 8 * h;
                const int weight = COMPLEMENT || row >= num_queries ? 0 : query_weights[row];
                const int start = row < num_queries ? start_of<EXACT>(keys_up_to[row], weight, chunk) : NEVER;
                if constexpr (COMPLEMENT) starts[m][2 * h] = start, starts[m][2 * h + 1] = (int)pinned(start);
                else starts[m][h] = start;
            }
        int groups = (int)((min(chunk + CHUNK, end) - chunk + 7) / 8);
        const u32* const codes = reference + (chunk + g) * WORDS + LOAD * t;
        const int* const parts = whole((EXACT ? weights : halves) + chunk + 2 * t);
        u32 ahead[2 * SLICES];
        int2 part_ahead = {};
        load_part(ahead, codes);
        if (!COMPLEMENT) part_ahead = __ldg(reinterpret_cast<const int2*>(parts));
        for (int group = 0; group < groups; ++group) {
            u32 b[2 * SLICES];
#pragma unroll
            for (int i = 0; i < 2 * SLICES; ++i) b[i] = ahead[i];
            const int2 part = part_ahead;
            const u32 next = min(group + 1, groups - 1);
            load_part(ahead, codes + 8 * WORDS * next);
            if (!COMPLEMENT) part_ahead = __ldg(reinterpret_cast<const int2*>(parts + 8 * next));
            int sums[TILES][4];
#pragma unroll
            for (int i = 0; i < 4 * TILES; ++i)
                if constexpr (COMPLEMENT) sums[i / 4][i % 4] = starts[i / 4][i % 4];
                else {
                    const int row = starts[i / 4][i % 4 / 2], column = i % 2 ? part.y : part.x;
                    sums[i / 4][i % 4] = EXACT ? (row - column) >> 1 : row + column;
                }
            multiply_all(sums, a, b);
            int misses[TILES / PART], miss = -1;  // negative where all sums are
#pragma unroll
            for (int p = 0; p < TILES / PART; ++p) {
                misses[p] = -1;
#pragma unroll
                for (int i = 4 * PART * p; i < 4 * PART * (p + 1); ++i) misses[p] &= sums[i / 4][i % 4];
                miss &= misses[p];
            }
            if (!__any_sync(ALL, miss >= 0)) continue;
            u32 hits = 0;
#pragma unroll
            for (int p = 0; p < TILES / PART; ++p)
                if (misses[p] >= 0) {
                    u32 signs = ALL;
#pragma unroll
                    for (int i = 4 * PART * (p + 1) - 1; i >= 4 * PART * p; --i)
                        signs = __funnelshift_l(sums[i / 4][i % 4], signs, 1);
                    hits |= ~signs << 4 * PART * p;
                }
            bool flushed = false;
            for (u32 busy; (busy = __ballot_sync(ALL, hits != 0)) != 0;) {
                if (hits) {
                    const u32 place = filled + __popc(busy & ((1u << lane) - 1));
                    const u32 element = __ffs(hits) - 1;
                    queue[place] = (u32)((chunk - begin) / 8 + group) << 10 | element << 5 | lane;
                    hits &= hits - 1;
                }
                filled += __popc(busy);
                if (filled > QUEUE - 32) flush(), flushed = true;
            }
            if (COMPLEMENT || EXACT || !flushed) continue;
            if (exact_pays(chunk + 8 * (group + 1))) groups = group + 1;
        }
        return chunk + 8ll * groups;
    };

    i64 chunk = begin;
    while (chunk < end && (COMPLEMENT || !exact_pays(chunk))) chunk = scan(chunk, Choice<false>{});
    if constexpr (!COMPLEMENT)
        while (chunk < end) chunk = scan(chunk, Choice<true>{});
    flush();
}
