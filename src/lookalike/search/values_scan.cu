// The scan of a reference of codes of several bits. Columns are staged in shared memory, whence warps multiply them.

constexpr int THREADS = 32 * WARPS;
constexpr int WIDE = 4 / TILES;  // eights of columns that a warp multiplies at a time, so that four products are under way
constexpr int STEP = 8 * WIDE;
constexpr int BLOCKS_OF_64 = (SLICES + 1) / 2;
constexpr int COLUMN = 64 * BLOCKS_OF_64;  // bytes of a column's values in shared memory
constexpr int STAGE_BYTES = STAGE * (COLUMN + sizeof(Tail) + sizeof(float2) + sizeof(int));
constexpr int CHUNK = 2048;  // columns between two looks at the limits
constexpr int FULL = 128;  // hits in a queue, to which each lane may add one more

struct Hit {
    u32 column;  // counted from the block's first
    u32 row_and_distance;  // row of the warp << 16 | distance
};

struct __align__(16) RowOfWarp {  // what the exact distance of a hit takes
    int factor, rest, limit, mark;
    Threshold threshold;
};

struct Stage {
    char* values;

    __device__ Tail* tails() const { return reinterpret_cast<Tail*>(values + STAGE * COLUMN); }
    __device__ float2* parts() const { return reinterpret_cast<float2*>(tails() + STAGE); }
    __device__ int* marks() const { return reinterpret_cast<int*>(parts() + STAGE); }

    // Starts to copy `columns` columns. Neighbours' 64 bytes change places where they would lie in the same banks.
    __device__ __forceinline__ void fill(
        const u32* reference, const float2* all_parts, const int* all_marks, i64 from, int columns) const {
        constexpr int UNITS = WORDS / 4;
        const u32* const source = reference + from * WORDS;
        int column = threadIdx.x / UNITS, unit = threadIdx.x % UNITS;
        for (int i = threadIdx.x; i < columns * UNITS; i += THREADS) {
            char* const place = values + column * COLUMN + 16 * (unit ^ swap_of(column) / 16);
            copy_16_bytes(unit == UNITS - 1 ? reinterpret_cast<char*>(tails() + column) : place, source + 4 * i);
            column += THREADS / UNITS;
            unit += THREADS % UNITS;
            if (unit >= UNITS) unit -= UNITS, ++column;
        }
        for (int i = 4 * threadIdx.x; i < columns; i += 4 * THREADS) {
            copy_16_bytes(parts() + i, all_parts + from + i);
            copy_16_bytes(parts() + i + 2, all_parts + from + i + 2);
            if (all_marks) copy_16_bytes(marks() + i, all_marks + from + i);
        }
    }

    __device__ static int swap_of(int column) { return BLOCKS_OF_64 % 2 ? 0 : 64 * (column % 2); }
};

struct FromStage {
    const char* column;
    int swap;

    __device__ __forceinline__ uint4 four(int s) const {
        return *reinterpret_cast<const uint4*>(column + ((32 * s) ^ swap) + 16 * (threadIdx.x % 4));
    }
    __device__ __forceinline__ uint2 two(int s) const {
        return *reinterpret_cast<const uint2*>(column + ((32 * s) ^ swap) + 8 * (threadIdx.x % 4));
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) filter(
    const u32* __restrict__ queries, const u32* __restrict__ reference, const float2* __restrict__ parts,
    const int* __restrict__ query_marks, const int* __restrict__ marks, const u32* wide_labels, const Extremes* extremes,
    const i64* __restrict__ keys_up_to, const i64* query_labels, const i64* reference_labels,
    const i64* exclude_offsets, const i64* exclude_ids, i64* keys, u32* counts, i64 num_queries, i64 num_references,
    i64 capacity, i64 span) {
    extern __shared__ __align__(128) i64 room[];
    __shared__ __align__(16) Hit queues[WARPS][FULL + 32];
    __shared__ RowOfWarp rows_of_warps[WARPS][ROWS];
    __shared__ __align__(16) u32 sums_of_warps[WARPS][16 * 32];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const i64 first = ((i64)blockIdx.x * WARPS + warp) * ROWS;
    const i64 begin = (i64)blockIdx.y * span, end = min(begin + span, num_references);
    const Lists lists = {
        {query_labels, reference_labels, exclude_offsets, exclude_ids}, keys, counts, capacity};
    Queue<Hit, FULL> queue = {queues[warp], 0};
    RowOfWarp* const own_rows = rows_of_warps[warp];
    u32* const own_sums = sums_of_warps[warp];
    const bool labels_fit = query_marks && !*wide_labels;
    u32 a[TILES][SLICES][4];
    Threshold thresholds[TILES][2];
    load_rows(a, queries, first, num_queries);

    // From a chunk on whose ids are beyond the limit's, rows at the limit's distance no longer count.
    auto look_at_limits = [&](i64 from) {
        __syncwarp();
#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int place = 16 * m + g + 8 * h;
                const i64 safe = min(first + place, num_queries - 1), key = keys_up_to[safe];
                int limit = min(distance_of(key), FARTHEST) - (id_of(key) >= from ? 0 : 1);
                if (first + place >= num_queries) limit = -1;
                const Tail tail = *reinterpret_cast<const Tail*>(queries + safe * WORDS + VALUES);
                thresholds[m][h] = threshold_of(limit, tail, *extremes);
                const int mark = labels_fit ? query_marks[safe] : 0;
                if (t == 0) own_rows[place] = {tail.factor, ONE - tail.offset, limit, mark, thresholds[m][h]};
            }
        __syncwarp();
    };

    auto look = [&](const Hit (&hits)[4], u32 valid) {
        i64 rows[4], columns[4], found[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            rows[i] = min(first + (hits[i].row_and_distance >> 16), num_queries - 1);
            columns[i] = begin + hits[i].column;
            found[i] = key_of((int)(hits[i].row_and_distance & 0xffff), columns[i]);
            if (found[i] > keys_up_to[rows[i]]) valid &= ~(1u << i);
        }
        lists.append(rows, columns, found, valid);
    };

    // Computes the distances of pairs whose sums may be hits, and queues those within the limit. Labels are compared here
    // as well, so that near rows that they leave out are not queued. Few of the sums have the flag in any lane; they are
    // passed through memory, which can be indexed.
    auto examine = [&](const u32* sums, const Stage& stage, int origin, int place, int columns) {
        const u32 flags = flags_of<16>(sums);
#pragma unroll
        for (int i = 0; i < 16; i += 4)
            reinterpret_cast<uint4*>(own_sums)[8 * i + lane] = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
#pragma unroll 1
        for (u32 left = __reduce_or_sync(ALL, flags); left; left &= left - 1) {
            const int bit = __ffs(left) - 1, i = place_of_flag(bit), tile = i / 4;
            const int row_of_warp = 16 * (tile % TILES) + g + i / 2 % 2 * 8;
            const int column = place + 8 * (tile / TILES) + 2 * t + i % 2;
            const RowOfWarp row = own_rows[row_of_warp];
            const float2 part = stage.parts()[column];
            const int product = (int)(own_sums[128 * tile + 4 * lane + i % 4] - start_of(row.threshold, part.x, part.y));
            const int away = distance_of_product(product, row.factor, row.rest, stage.tails()[column]);
            bool is_hit = flags >> bit & 1 && away <= row.limit && column < columns;
            if (labels_fit) is_hit = is_hit && stage.marks()[column] != row.mark;
            if (!__any_sync(ALL, is_hit)) continue;
            queue.add(is_hit, {(u32)(origin + column), (u32)(row_of_warp << 16 | away)});
            if (queue.full()) queue.template empty<4>(look);
        }
    };

    // Multiplies `columns` columns, of which the first is `origin` from the block's first.
    auto scan = [&](const Stage& stage, int origin, int columns) {
        const char* const column_of_lane = stage.values + g * COLUMN;
#pragma unroll 1
        for (int place = 0; place < columns; place += STEP) {
            u32 sums[WIDE][TILES][4];
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                const float4 part = reinterpret_cast<const float4*>(stage.parts())[place / 2 + 4 * j + t];
#pragma unroll
                for (int i = 0; i < 4 * TILES; ++i)
                    sums[j][i / 4][i % 4] = i % 2 ? start_of(thresholds[i / 4][i % 4 / 2], part.z, part.w)
                                                  : start_of(thresholds[i / 4][i % 4 / 2], part.x, part.y);
            }
#pragma unroll
            for (int s = 0; s < SLICES; s += 2)
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    const FromStage load = {column_of_lane + (place + 8 * j) * COLUMN, Stage::swap_of(g)};
                    uint4 b = {};
                    if (s + 1 < SLICES) b = load.four(s);
                    else {
                        const uint2 words = load.two(s);
                        b.x = words.x, b.y = words.y;
                    }
#pragma unroll
                    for (int m = 0; m < TILES; ++m) multiply_add(sums[j][m], a[m][s], b.x, b.y);
                    if (s + 1 < SLICES)
#pragma unroll
                        for (int m = 0; m < TILES; ++m) multiply_add(sums[j][m], a[m][(s + 1) % SLICES], b.z, b.w);
                }
            if (any_flag<16>(sums[0][0])) examine(sums[0][0], stage, origin, place, columns);
        }
    };

    Stage stages[2] = {{reinterpret_cast<char*>(room)}, {reinterpret_cast<char*>(room) + STAGE_BYTES}};
    stages[0].fill(reference, parts, marks, begin, (int)min((i64)STAGE, end - begin));
    for (i64 from = begin; from < end; from += STAGE) {
        if ((from - begin) % CHUNK == 0) look_at_limits(from);
        finish_copies();
        __syncthreads();
        const i64 next = from + STAGE;
        if (next < end) stages[1].fill(reference, parts, marks, next, (int)min((i64)STAGE, end - next));
        if (first < num_queries) scan(stages[0], (int)(from - begin), (int)min((i64)STAGE, end - from));
        const Stage filled = stages[1];
        stages[1] = stages[0];
        stages[0] = filled;
    }
    queue.template empty<4>(look);
}
