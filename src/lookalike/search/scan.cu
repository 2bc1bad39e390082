// The scan of the reference by any GPU of compute capability 8.0 or later, which warps do on their own.

#ifndef HOPPER
constexpr int CHUNK = 2048;  // columns between two looks at the limits
constexpr int REFUSAL_COST = 256;  // comparing the labels of this many pairs costs as much as one refused hit

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) filter(
    const u32* __restrict__ queries, const u32* __restrict__ reference, const int* __restrict__ query_weights,
    const int* __restrict__ parts, const int* __restrict__ query_marks, const int* __restrict__ marks,
    const u32* wide_labels, const i64* __restrict__ keys_up_to, const i64* query_labels, const i64* reference_labels,
    const i64* exclude_offsets, const i64* exclude_ids, i64* keys, u32* counts, i64 num_queries, i64 num_references,
    i64 capacity, i64 span) {
    __shared__ u32 queues[WARPS][QUEUE];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const i64 first = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    if (first >= num_queries) return;
    const i64 begin = (i64)blockIdx.y * span, end = min(begin + span, num_references);
    const Lists lists = {
        {query_labels, reference_labels, exclude_offsets, exclude_ids}, keys, counts, capacity};
    Queue<u32, QUEUE - 32> queue = {queues[threadIdx.x / 32], 0};
    u32 refused = 0;  // hits of this lane left out by label or list
    u32 a[TILES][SLICES][4];
    load_rows(a, queries, first, num_queries);

    // A hit is the number of its eight columns << 10 | bit of its flag << 5 | lane.
    auto look = [&](const u32 (&hits)[4], u32 valid) {
        i64 rows[4], columns[4], last_ties[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int place = place_of_flag(hits[i] >> 5 & 31), owner = hits[i] & 31;
            rows[i] = min(first + 16 * (place / 4) + owner / 4 + 8 * (place / 2 % 2), num_queries - 1);
            columns[i] = begin + 8ll * (hits[i] >> 10) + 2 * (owner % 4) + place % 2;
            last_ties[i] = id_of(keys_up_to[rows[i]]);
            if (columns[i] >= num_references) columns[i] = begin, valid &= ~(1u << i);
        }
        // Within a chunk, rows at the limit's distance pass although their ids come after the limit's.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (columns[i] <= last_ties[i] || (columns[i] - begin) / CHUNK != (last_ties[i] - begin) / CHUNK) continue;
            const int h = distance(queries + rows[i] * WORDS, reference + columns[i] * WORDS);
            if (h >= distance_of(keys_up_to[rows[i]])) valid &= ~(1u << i);
        }
        refused += lists.append(rows, columns, columns, valid);
    };

    const bool labels_fit = query_marks && !*wide_labels;
    auto refusing = [&](i64 seen) {
        return labels_fit && (i64)__reduce_add_sync(ALL, refused) * REFUSAL_COST > (seen - begin) * ROWS;
    };

    // Scans a chunk from one of its groups of eight columns on and returns the group to continue with. Stops early once it
    // pays to compare labels first.
    auto scan = [&](i64 chunk, int from, auto choice) {
        constexpr bool MARKED = decltype(choice)::value;
        u32 starts[TILES][COMPLEMENT ? 4 : 2];
        int own[TILES][2] = {};
#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const i64 row = first + 16 * m + g + 8 * h, safe = min(row, num_queries - 1), limit = keys_up_to[safe];
                const int ties = id_of(limit) >= chunk ? 0 : 1;  // from here on, rows at the limit's distance come after it
                const int distance = min(distance_of(limit), BITS) - ties;
                if constexpr (COMPLEMENT) {
                    const u32 start = row < num_queries ? START - BITS + distance : START_NEVER;
                    starts[m][2 * h] = start, starts[m][2 * h + 1] = pinned(start);
                } else {
                    const float part = row_part(distance, query_weights[safe]) + (row < num_queries ? 0 : NEVER);
                    starts[m][h] = __float_as_uint(part);
                }
                if (MARKED) own[m][h] = query_marks[safe];
            }
        int groups = (int)((min(chunk + CHUNK, end) - chunk + 7) / 8);
        const u32* const codes = reference + (chunk + g) * WORDS + LOAD * t;
        const int* const column_parts = whole(parts + chunk + 2 * t);
        u32 ahead[2 * SLICES];
        int2 part_ahead = {};
        load_part(ahead, codes + 8 * WORDS * from);
        if (!COMPLEMENT) part_ahead = __ldg(reinterpret_cast<const int2*>(column_parts + 8 * from));
        for (int group = from; group < groups; ++group) {
            u32 b[2 * SLICES];
#pragma unroll
            for (int i = 0; i < 2 * SLICES; ++i) b[i] = ahead[i];
            const float2 part = {__int_as_float(part_ahead.x), __int_as_float(part_ahead.y)};
            int2 mark = {};
            if (MARKED) mark = __ldg(reinterpret_cast<const int2*>(marks + chunk + 8 * group + 2 * t));
            const u32 next = min(group + 1, groups - 1);
            load_part(ahead, codes + 8 * WORDS * next);
            if (!COMPLEMENT) part_ahead = __ldg(reinterpret_cast<const int2*>(column_parts + 8 * next));
            u32 sums[TILES][4];
#pragma unroll
            for (int i = 0; i < 4 * TILES; ++i) {
                if constexpr (COMPLEMENT) sums[i / 4][i % 4] = starts[i / 4][i % 4];
                else {
                    const float row = __uint_as_float(starts[i / 4][i % 4 / 2]), column = i % 2 ? part.y : part.x;
                    sums[i / 4][i % 4] = __float_as_uint(__fadd_rd(row, column));
                }
                if (MARKED && own[i / 4][i % 4 / 2] == (i % 2 ? mark.y : mark.x)) sums[i / 4][i % 4] = START_NEVER;
            }
            multiply_all(sums, a, b);
            if (!any_flag<4 * TILES>(sums[0])) continue;
            u32 hits = flags_of<4 * TILES>(sums[0]);
            const u32 origin = (u32)((chunk - begin) / 8 + group) << 10;
            bool emptied = false;
            do {
                queue.take(hits, origin);
                if (queue.full()) queue.empty<4>(look), emptied = true;
            } while (__any_sync(ALL, hits != 0));
            if (!MARKED && emptied && refusing(chunk + 8 * (group + 1))) groups = group + 1;
        }
        return groups;
    };

    for (i64 chunk = begin; chunk < end; chunk += CHUNK)
        for (int group = 0; chunk + 8 * group < min(chunk + CHUNK, end);)
            if (refusing(chunk + 8 * group)) group = scan(chunk, group, Choice<true>{});
            else group = scan(chunk, group, Choice<false>{});
    queue.empty<4>(look);
}
#endif
