// The scan of the reference on Hopper (sm_90a). Codes are staged in shared memory, whence warpgroups multiply them.

#ifdef HOPPER
constexpr int THREADS = 128 * WARPGROUPS;
constexpr int LEAD = 16 * STAGE + 32;  // from 16 bytes of a code to the next, of a stage; 32 against bank conflicts
constexpr int CHUNKS = WORDS / 4;
constexpr int STAGE_BYTES = CHUNKS * LEAD + 8 * STAGE;  // codes, parts, marks
constexpr int ROUND = 4 / STRIPES * WIDTH;  // columns of four products
constexpr int REFUSAL_COST = 512;  // comparing the labels of this many pairs costs as much as one refused hit

struct Stage {
    char* codes;

    __device__ float* parts() const { return reinterpret_cast<float*>(codes + CHUNKS * LEAD); }
    __device__ int* marks() const { return reinterpret_cast<int*>(parts() + STAGE); }

    // Lets a lane's columns lie side by side, four by four: column 4 t + 2 j + i % 2 of sixteen is multiplied as
    // 8 j + 2 t + i % 2.
    __device__ static int place_of(int column) {
        return (column & ~15) | (column & 2) << 2 | (column >> 1 & 6) | (column & 1);
    }

    // Starts to copy `columns` columns, rounded up to whole rounds; the last is repeated.
    __device__ __forceinline__ void fill(
        const u32* reference, const int* all_parts, const int* all_marks, i64 from, int columns) const {
        static_assert(THREADS % (16 * CHUNKS) == 0, "threads that copy one after another take the same 16 bytes of codes");
        constexpr int STEP = THREADS / CHUNKS;
        const int padded = (columns + ROUND - 1) / ROUND * ROUND, first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        char* const to = codes + chunk * LEAD + 16 * place_of(first);
        const u32* const source = reference + from * WORDS + 4 * chunk;
        if (columns == STAGE)
#pragma unroll
            for (int i = 0; i < STAGE; i += STEP) copy_16_bytes(to + 16 * i, source + (first + i) * WORDS);
        else
            for (int i = 0; i < padded - first; i += STEP)
                copy_16_bytes(to + 16 * i, source + min(first + i, columns - 1) * WORDS);
        for (int i = 4 * threadIdx.x; i < padded; i += 4 * THREADS) {
            copy_16_bytes(parts() + i, all_parts + from + i);
            if (all_marks) copy_16_bytes(marks() + i, all_marks + from + i);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) filter(
    const u32* __restrict__ queries, const u32* __restrict__ reference, const int* __restrict__ query_weights,
    const int* __restrict__ parts, const int* __restrict__ query_marks, const int* __restrict__ marks,
    const u32* wide_labels, const i64* keys_up_to, const i64* query_labels, const i64* reference_labels,
    const i64* exclude_offsets, const i64* exclude_ids, i64* keys, u32* counts, i64 num_queries, i64 num_references,
    i64 capacity, i64 span) {
    extern __shared__ __align__(128) i64 room[];
    __shared__ u32 queues[THREADS / 32][QUEUE];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const i64 first = ((i64)blockIdx.x * WARPGROUPS + warp / 4) * STRIPES * 64 + warp % 4 * 16;  // row of this warp
    const i64 begin = (i64)blockIdx.y * span, end = min(begin + span, num_references);
    const Lists lists = {
        {query_labels, reference_labels, exclude_offsets, exclude_ids}, keys, counts, capacity};
    Queue<u32, QUEUE - 32> queue = {queues[warp], 0};
    u32 refused = 0;  // hits of this lane left out by label or list

    // A hit is the number of its product << 12 | stripe << 10 | bit of its flag << 5 | lane.
    auto row_of = [&](u32 hit) {
        const int bit = hit >> 5 & 31;
        return first + 64 * (hit >> 10 & 3) + (hit >> 2 & 7) + 8 * (bit >> 4);
    };
    auto column_of = [&](u32 hit) {
        const int bit = hit >> 5 & 31;
        return begin + WIDTH * (i64)(hit >> 12) + 16 * (bit >> 1 & 3) + 4 * (hit & 3) + 2 * (bit & 1) + (bit >> 3 & 1);
    };
    auto look = [&](const u32 (&hits)[4], u32 valid) {
        i64 rows[4], columns[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i] = row_of(hits[i]), columns[i] = column_of(hits[i]);
        refused += lists.append(rows, columns, columns, valid);
    };

    u32 a[STRIPES][SLICES][4];
    float starts[STRIPES][2];
    int last_ties[STRIPES][2], own[STRIPES][2];  // the limit's id, from `begin` on; labels
#pragma unroll
    for (int m = 0; m < STRIPES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const i64 row = first + 64 * m + 8 * h + g, safe = min(row, num_queries - 1);
            const i64 limit = keys_up_to[safe], ties = id_of(limit) - begin;
            starts[m][h] = row_part(min(distance_of(limit), BITS), query_weights[safe]) + (row < num_queries ? 0 : NEVER);
            last_ties[m][h] = (int)max(-1ll, min(ties, span));
            own[m][h] = query_marks ? query_marks[safe] : 0;
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
                const u32* const code = queries + safe * WORDS + 8 * s + t;
                a[m][s][h] = __ldg(code);
                a[m][s][2 + h] = WORDS == 4 ? 0 : __ldg(code + 4);
            }
        }

    // Multiplies `columns` columns of a stage from `from` on, counted from `begin`. While a product is under way, the one
    // before it is tested and the next is prepared; a round of them ends with none under way.
    auto scan = [&](const Stage& stage, int from, int columns, bool marked) {
        u32 sums[2][SUMS];
        int ties[2];
        bool special;
        auto start = [&](int place, int m, u32 (&x)[SUMS]) {
            auto fill = [&](auto is_special) {
                constexpr bool SPECIAL = decltype(is_special)::value;
#pragma unroll
                for (int i = 0; i < SUMS; i += 8) {
                    const int column = 2 * i + 4 * t;
                    const float4 part = *reinterpret_cast<const float4*>(stage.parts() + place + column);
                    int4 mark = {};
                    if (SPECIAL && marked) mark = *reinterpret_cast<const int4*>(stage.marks() + place + column);
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        const int h = e / 2 % 2, c = e / 4 * 2 + e % 2;
                        const float column_start = c < 2 ? c ? part.y : part.x : c % 2 ? part.w : part.z;
                        const int other = c < 2 ? c ? mark.y : mark.x : c % 2 ? mark.w : mark.z;
                        const bool late = ties[h] < (SPECIAL ? place + column + c : 0);
                        const float start = late ? starts[m][h] - 0.5f : starts[m][h];
                        x[i + e] = __float_as_uint(__fadd_rd(start, column_start));
                        if (SPECIAL && marked && own[m][h] == other) x[i + e] = START_NEVER;
                    }
                }
            };
            if (special) fill(Choice<true>{});
            else fill(Choice<false>{});
            multiply<LEAD>(x, a[m], stage.codes + 16 * place);
        };
        auto test = [&](int place, int m, u32 (&x)[SUMS]) {
            if (!any_flag<SUMS>(x)) return;
            u32 hits = flags_of<SUMS>(x);
            const u32 origin = (u32)(from + place) / WIDTH << 12 | m << 10;
            do {
                queue.take(hits, origin);
                if (queue.full()) queue.empty<4>(look);
            } while (__any_sync(ALL, hits != 0));
        };
#pragma unroll 1
        for (int round = 0; round < columns; round += ROUND) {
#pragma unroll
            for (int i = 0; i < 5; ++i) {
                const int before = i - 1, place = round + (STRIPES == 1 ? i : i % 2) * WIDTH;
                if (i < 4) {
                    if (i % 2 == 0) {  // rows at the limit's distance no longer count beyond its id
                        bool splits = marked;
#pragma unroll
                        for (int h = 0; h < 2; ++h) {
                            ties[h] = last_ties[i / 2 % STRIPES][h] - from;
                            splits |= (u32)(ties[h] - place) < 2 * WIDTH - 1;
                        }
                        special = __any_sync(ALL, splits);  // for few products
                        if (!special)
#pragma unroll
                            for (int h = 0; h < 2; ++h) ties[h] -= place;
                    }
                    start(place, i / 2 % STRIPES, sums[i % 2]);
                }
                if (i == 0) continue;
                if (i < 4) await<1>(sums[before % 2]);
                else await<0>(sums[before % 2]);
                test(round + (STRIPES == 1 ? before : before % 2) * WIDTH, before / 2 % STRIPES, sums[before % 2]);
            }
        }
    };

    Stage stages[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) stages[i].codes = reinterpret_cast<char*>(room) + i * STAGE_BYTES;
    const bool labels_fit = query_marks && !*wide_labels;
    stages[0].fill(reference, parts, marks, begin, (int)min((i64)STAGE, end - begin));
    for (i64 from = begin; from < end; from += STAGE) {
        finish_copies();
        const bool refusing = labels_fit && (i64)__reduce_add_sync(ALL, refused) * REFUSAL_COST > (from - begin) * 16 * STRIPES;
        const bool marked = __syncthreads_or(refusing);  // the same for all, because warps of a group multiply together
        const i64 next = from + STAGE;
        if (next < end) stages[1].fill(reference, parts, marks, next, (int)min((i64)STAGE, end - next));
        const int columns = (int)min((i64)STAGE, end - from);
        scan(stages[0], (int)(from - begin), columns, marked);
        const Stage filled = stages[1];
        stages[1] = stages[0];
        stages[0] = filled;
    }
    queue.empty<4>(look);
}
#endif
