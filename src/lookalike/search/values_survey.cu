// A limit per query among codes of several bits: a key that slightly more than k rows should stay within, from a sample.

// What a row of the sample, of this rank by id, adds to its value beside its closeness. Values compare as signed.
__device__ __forceinline__ int sample_offset(int rank, i64, const int*) { return (int)(0x80000000u - 1 - (u32)rank); }

// Finds the best row of each group of the sample, as (closeness >> coarser) + 1 << place_bits, less the rank of its id and
// one: nearer rows and smaller ids are larger. A group is the `run` columns that one lane sees in one position. Large
// samples leave fewer than 15 bits for the closeness. `marks` are as for sign codes.
template <bool MARKED>
__device__ __forceinline__ void survey_groups(
    const u32* queries, const u32* sample, const int* offsets, const int* query_marks, const int* sample_marks,
    int* best, i64 num_queries, i64 run, i64 stride, int place_bits, int coarser) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const i64 first = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    if (first >= num_queries) return;
    u32 a[TILES][SLICES][4];
    load_rows(a, queries, first, num_queries);
    int factors[TILES][2], rests[TILES][2], own[TILES][2] = {};
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const i64 row = min(first + 16 * m + g + 8 * h, num_queries - 1);
            const Tail tail = *reinterpret_cast<const Tail*>(queries + row * WORDS + VALUES);
            factors[m][h] = tail.factor, rests[m][h] = ONE - tail.offset;
            if (MARKED) own[m][h] = query_marks[row];
        }
    for (int part = blockIdx.y; part < GROUPS / 8; part += gridDim.y) {
        int top[TILES][4];
#pragma unroll
        for (int i = 0; i < 4 * TILES; ++i) top[i / 4][i % 4] = (int)0x80000000;
        const int column = part * (int)run * 8;
#pragma unroll 1
        for (int step = 0; step < (int)run; ++step) {
            const u32* const rows = sample + (i64)(column + 8 * step) * WORDS;
            u32 b[2 * SLICES];
            load_part(b, FromRow{rows + g * WORDS});
            const int2 offset = __ldg(reinterpret_cast<const int2*>(offsets + column + 8 * step + 2 * t));
            int2 mark = {};
            if (MARKED) mark = __ldg(reinterpret_cast<const int2*>(sample_marks + column + 8 * step + 2 * t));
            u32 sums[TILES][4] = {};
            multiply_all(sums, a, b);
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const Tail tail = *reinterpret_cast<const Tail*>(rows + (2 * t + c) * WORDS + VALUES);
#pragma unroll
                for (int i = c; i < 4 * TILES; i += 2) {
                    const int m = i / 4, h = i % 4 / 2;
                    const int away = distance_of_product((int)sums[m][i % 4], factors[m][h], rests[m][h], tail);
                    const u32 closeness = (u32)((FARTHEST - away) >> coarser) + 1;
                    const int value = (int)((closeness << place_bits) + (u32)(c ? offset.y : offset.x));
                    if (MARKED) raise_unless(own[m][h], c ? mark.y : mark.x, top[m][i % 4], value);
                    else top[m][i % 4] = max(top[m][i % 4], value);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const i64 row = first + 16 * m + g + 8 * h;
                int2* const place = reinterpret_cast<int2*>(best + row * stride + 8 * part + 2 * t);
                if (row < num_queries) *place = {top[m][2 * h], top[m][2 * h + 1]};
            }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) survey(
    const u32* queries, const u32* sample, const int* offsets, const int* query_marks, const int* sample_marks,
    int* best, i64 num_queries, i64 run, i64 stride, i64 place_bits, i64 coarser) {
    survey_groups<false>(
        queries, sample, offsets, query_marks, sample_marks, best, num_queries, run, stride, (int)place_bits,
        (int)coarser);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) survey_marked(
    const u32* queries, const u32* sample, const int* offsets, const int* query_marks, const int* sample_marks,
    int* best, i64 num_queries, i64 run, i64 stride, i64 place_bits, i64 coarser) {
    survey_groups<true>(
        queries, sample, offsets, query_marks, sample_marks, best, num_queries, run, stride, (int)place_bits,
        (int)coarser);
}

// One warp per query. The distance of the row found is computed again, because values may be coarser.
extern "C" __global__ void limits(
    const int* best, const u32* queries, const u32* reference, i64 place_bits, const i64* sample_ids,
    const i64* exclude_offsets, i64* keys_up_to, i64 num_queries, i64 stride, i64 k, i64 spare, double share,
    double deviations) {
    const i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= num_queries) return;
    const u32 found = value_of_rank(best + row * stride, exclude_offsets, row, k, spare, share, deviations);
    if (threadIdx.x % 32) return;
    keys_up_to[row] = UNLIMITED;
    if (!found) return;  // and names no row
    const i64 id = sample_ids[~found & ((1u << place_bits) - 1)];
    keys_up_to[row] = key_of(distance(queries + row * WORDS, reference + id * WORDS), id);
}
