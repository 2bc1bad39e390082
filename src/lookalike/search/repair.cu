// The repair of queries whose candidates do not suffice.

constexpr int THREADS_OF_REPAIR = 1024;

constexpr int BINS = FARTHEST < 4096 ? FARTHEST + 1 : 256;  // of a histogram in shared memory
constexpr int COARSE = (FARTHEST + BINS) / BINS;  // distances in each bin of a first histogram, if one is not enough
static_assert(COARSE <= BINS, "two histograms suffice");

// Blocks take queries off the list. One sweep, or two, count rows by distance, which gives the distance of the k-th; the
// last keeps all nearer rows and, in order of id, as many at that distance as are still missing. Rows beyond the request's
// own limit do not count.
extern "C" __global__ void __launch_bounds__(THREADS_OF_REPAIR) repair(
    const u32* queries, const u32* reference, const i64* query_labels, const i64* reference_labels,
    const i64* exclude_offsets, const i64* exclude_ids, const u32* repairs, const i64* bounds, int* distances,
    i64* indices, i64 num_references, i64 k) {
    extern __shared__ __align__(128) i64 room[];
    __shared__ u32 histogram[BINS];
    __shared__ __align__(16) u32 code[WORDS];
    __shared__ int level, missing, kept, warp_ties[THREADS_OF_REPAIR / 32];
    const Filters filters = {query_labels, reference_labels, exclude_offsets, exclude_ids};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 rounds = (num_references + THREADS_OF_REPAIR - 1) / THREADS_OF_REPAIR;
    for (u32 item = blockIdx.x; item < repairs[0]; item += gridDim.x) {
        const i64 row = repairs[1 + item];
        __syncthreads();
        for (int i = threadIdx.x; i < WORDS; i += THREADS_OF_REPAIR) code[i] = queries[row * WORDS + i];
        if (threadIdx.x == 0) kept = 0;
        // Counts rows in bins of `width` distances from `origin` on, all of them or only as far as the bins go.
        auto count = [&](int origin, auto width, auto all) {
            constexpr int WIDTH = decltype(width)::value;
            for (int i = threadIdx.x; i < BINS; i += THREADS_OF_REPAIR) histogram[i] = 0;
            __syncthreads();
            for (i64 round = 0; round < rounds; ++round) {
                const i64 column = THREADS_OF_REPAIR * round + threadIdx.x;
                const int h = distance_by_warp(code, reference, column - lane, num_references);
                const u32 bin = (u32)(h - origin) / WIDTH;
                const bool counts = decltype(all)::value || bin < BINS;
                if (column < num_references && counts && filters.admit(row, column)) atomicAdd(histogram + bin, 1u);
            }
            __syncthreads();
        };
        i64 nearer = 0;  // rows in the bins passed, as the first thread knows
        int origin = 0;
        if constexpr (COARSE > 1) {
            count(0, Constant<COARSE>{}, Choice<true>{});
            if (threadIdx.x == 0) {
                const int last = (bounds ? min(distance_of(bounds[row]), FARTHEST) : FARTHEST) / COARSE;
                int bin = 0;
                while (bin < last && nearer + histogram[bin] < k) nearer += histogram[bin++];
                level = COARSE * bin;
            }
            __syncthreads();
            origin = level;
        }
        count(origin, Constant<1>{}, Choice<COARSE == 1>{});
        if (threadIdx.x == 0) {
            int farthest = bounds ? distance_of(bounds[row]) : FARTHEST;
            if (COARSE > 1) farthest = min(farthest, min(origin + BINS - 1, FARTHEST));
            int h = origin;
            while (h < farthest && nearer + histogram[h - origin] < k) nearer += histogram[h++ - origin];
            level = min(h, farthest);  // -1: nothing counts
            missing = level < 0 ? 0 : (int)min(k - nearer, (i64)histogram[h - origin]);
        }
        __syncthreads();
        for (i64 round = 0; round < rounds; ++round) {
            const i64 column = THREADS_OF_REPAIR * round + threadIdx.x;
            int h = distance_by_warp(code, reference, column - lane, num_references);
            if (column >= num_references || (h <= level && !filters.admit(row, column))) h = FARTHEST + 1;
            if (h < level) room[atomicAdd(&kept, 1)] = key_of(h, column);
            if (missing == 0 || !__syncthreads_or(h == level)) continue;
            const u32 ties = __ballot_sync(ALL, h == level);
            if (lane == 0) warp_ties[warp] = __popc(ties);
            __syncthreads();
            int before = __popc(ties & ((1u << lane) - 1)), all = 0;
            for (int i = 0; i < THREADS_OF_REPAIR / 32; ++i) {
                before += i < warp ? warp_ties[i] : 0;
                all += warp_ties[i];
            }
            const int left = missing;
            if (h == level && before < left) room[atomicAdd(&kept, 1)] = key_of(h, column);
            __syncthreads();
            if (threadIdx.x == 0) missing = max(0, left - all);
            __syncthreads();
        }
        __syncthreads();
        write_sorted(room, kept, row, (int)k, distances, indices);
    }
}
