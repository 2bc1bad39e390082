// A limit per query: a key that slightly more than k rows should stay within, from a sample of the reference.

constexpr int PLACE_BITS = 19;  // width of a row's place in the sample
constexpr int UNROLLED = TILES > 4 ? 1 : 2;  // as the registers allow
constexpr int UNIT = (COMPLEMENT ? 1 : 2) << PLACE_BITS;

// What a row of the sample, of this rank by id, adds to its value beside the product.
__device__ __forceinline__ int sample_offset(int rank, i64 row, const int* weights) {
    return (1 << PLACE_BITS) - 1 - rank - (COMPLEMENT ? 0 : weights[row] << PLACE_BITS);
}

// Finds the best row of each group of the sample, as closeness << PLACE_BITS | place: nearer rows and smaller ids are
// larger. `closeness` is the part of the distance that depends on the column, and `offsets` holds the part of the value
// that needs no product. A group is the `run` columns that one lane sees in one position. `marks` are labels hashed to
// 32 bits: where two collide, a row of the sample is left out, which makes a limit wider.
template <bool MARKED>
__device__ __forceinline__ void survey_groups(
    const u32* queries, const u32* sample, const int* offsets, const int* query_marks, const int* sample_marks,
    int* best, i64 num_queries, i64 run, i64 stride) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const i64 first = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    if (first >= num_queries) return;
    u32 a[TILES][SLICES][4];
    load_rows(a, queries, first, num_queries);
    int own[TILES][2] = {};
    if (MARKED)
#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) own[m][h] = query_marks[min(first + 16 * m + g + 8 * h, num_queries - 1)];
    for (int part = blockIdx.y; part < GROUPS / 8; part += gridDim.y) {
        int top[TILES][4];
#pragma unroll
        for (int i = 0; i < 4 * TILES; ++i) top[i / 4][i % 4] = (int)0x80000000;
        const int column = part * (int)run * 8;
#pragma unroll UNROLLED
        for (int step = 0; step < (int)run; ++step) {
            u32 b[2 * SLICES];
            load_part(b, sample + (column + 8 * step + g) * WORDS + LOAD * t);
            const int2 offset = __ldg(reinterpret_cast<const int2*>(offsets + column + 8 * step + 2 * t));
            int2 mark = {};
            if (MARKED) mark = __ldg(reinterpret_cast<const int2*>(sample_marks + column + 8 * step + 2 * t));
            u32 sums[TILES][4] = {};
            multiply_all(sums, a, b);
#pragma unroll
            for (int i = 0; i < 4 * TILES; ++i) {
                const int value = (int)sums[i / 4][i % 4] * UNIT + (i % 2 ? offset.y : offset.x);
                if (MARKED) raise_unless(own[i / 4][i % 4 / 2], i % 2 ? mark.y : mark.x, top[i / 4][i % 4], value);
                else top[i / 4][i % 4] = max(top[i / 4][i % 4], value);
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
    int* best, i64 num_queries, i64 run, i64 stride) {
    survey_groups<false>(queries, sample, offsets, query_marks, sample_marks, best, num_queries, run, stride);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) survey_marked(
    const u32* queries, const u32* sample, const int* offsets, const int* query_marks, const int* sample_marks,
    int* best, i64 num_queries, i64 run, i64 stride) {
    survey_groups<true>(queries, sample, offsets, query_marks, sample_marks, best, num_queries, run, stride);
}

// One warp per query.
extern "C" __global__ void limits(
    const int* best, const int* query_weights, const i64* sample_ids, const i64* exclude_offsets, i64* keys_up_to,
    i64 num_queries, i64 stride, i64 k, i64 spare, double share, double deviations) {
    const i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= num_queries) return;
    const u32 found = value_of_rank(best + row * stride, exclude_offsets, row, k, spare, share, deviations);
    if (threadIdx.x % 32) return;
    const int value = (int)(found ^ 0x80000000u), closeness = value >> PLACE_BITS;
    const int place = (1 << PLACE_BITS) - 1 - (value & ((1 << PLACE_BITS) - 1));
    const int h = COMPLEMENT ? BITS - closeness : query_weights[row] - closeness;
    keys_up_to[row] = found ? key_of(h, sample_ids[place]) : UNLIMITED;
}
