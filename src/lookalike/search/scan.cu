// The scan of the reference by any GPU of compute capability 8.0 or later.

#ifndef HOPPER
constexpr int CHUNK = 2048;  // columns between two reads of the limits
constexpr int NEVER = -(1 << 28);

__device__ __forceinline__ int part_of(int weight) { return -((weight + 1) >> 1); }
__device__ __forceinline__ int part_of_none() { return part_of(0); }  // columns past the end are left out as hits

constexpr int HIT_COST = 256;  // exact thresholds for this many pairs cost as much as one needless hit

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
    const int* __restrict__ weights, const int* __restrict__ parts, const i64* __restrict__ keys_up_to,
    const i64* query_labels, const i64* reference_labels, const i64* exclude_offsets, const i64* exclude_ids, i64* keys,
    u32* counts, i64 num_queries, i64 num_references, i64 capacity, i64 span) {
    __shared__ u32 queues[WARPS][QUEUE];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const i64 first = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    if (first >= num_queries) return;
    const i64 begin = (i64)blockIdx.y * span, end = min(begin + span, num_references);
    const Lists lists = {
        {query_labels, reference_labels, exclude_offsets, exclude_ids}, keys, counts, capacity};
    Queue queue = {queues[threadIdx.x / 32], 0};
    u32 needless = 0;  // hits of this lane that passed by rounding only
    u32 a[TILES][SLICES][4];
    load_rows(a, queries, first, num_queries);

    auto look = [&](const u32 (&hits)[1], u32 valid) {
        const u32 element = hits[0] >> 5 & 31, owner = hits[0] & 31;
        const i64 row = first + 16 * (element / 4) + owner / 4 + 8 * (element / 2 % 2);
        const i64 column = begin + 8ll * (hits[0] >> 10) + 2 * (owner % 4) + element % 2;
        if (!valid || column >= num_references) return;
        const i64 key = key_of(distance(queries + row * WORDS, reference + column * WORDS), column);
        if (key > keys_up_to[row]) ++needless;
        else lists.append({row}, {key}, 1);
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
        const int* const column_parts = whole((EXACT ? weights : parts) + chunk + 2 * t);
        u32 ahead[2 * SLICES];
        int2 part_ahead = {};
        load_part(ahead, codes);
        if (!COMPLEMENT) part_ahead = __ldg(reinterpret_cast<const int2*>(column_parts));
        for (int group = 0; group < groups; ++group) {
            u32 b[2 * SLICES];
#pragma unroll
            for (int i = 0; i < 2 * SLICES; ++i) b[i] = ahead[i];
            const int2 part = part_ahead;
            const u32 next = min(group + 1, groups - 1);
            load_part(ahead, codes + 8 * WORDS * next);
            if (!COMPLEMENT) part_ahead = __ldg(reinterpret_cast<const int2*>(column_parts + 8 * next));
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
            u32 hits[1] = {0};
#pragma unroll
            for (int p = 0; p < TILES / PART; ++p)
                if (misses[p] >= 0) {
                    u32 signs = ALL;
#pragma unroll
                    for (int i = 4 * PART * (p + 1) - 1; i >= 4 * PART * p; --i)
                        signs = __funnelshift_l(sums[i / 4][i % 4], signs, 1);
                    hits[0] |= ~signs << 4 * PART * p;
                }
            const u32 origin = (u32)((chunk - begin) / 8 + group) << 10;
            bool emptied = false;
            do {
                queue.take(hits, origin);
                if (queue.full()) queue.empty<1>(look), emptied = true;
            } while (__any_sync(ALL, hits[0] != 0));
            if (COMPLEMENT || EXACT || !emptied) continue;
            if (exact_pays(chunk + 8 * (group + 1))) groups = group + 1;
        }
        return chunk + 8ll * groups;
    };

    i64 chunk = begin;
    while (chunk < end && (COMPLEMENT || !exact_pays(chunk))) chunk = scan(chunk, Choice<false>{});
    if constexpr (!COMPLEMENT)
        while (chunk < end) chunk = scan(chunk, Choice<true>{});
    queue.empty<1>(look);
}
#endif
