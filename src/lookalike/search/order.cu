// Candidates -> neighbours, and the repair of queries whose candidates do not suffice.

__device__ int block_sum(int value) {
    __shared__ int sums[32];
    const int warp = threadIdx.x / 32;
    const int sum = (int)__reduce_add_sync(ALL, (u32)value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[warp] = sum;
    __syncthreads();
    int total = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) total += sums[i];
    return total;
}

__device__ int power_of_two(int n) { return n <= 2 ? 2 : 1 << (32 - __clz(n - 1)); }

// Sorts `size` keys and writes the first k; bitonic, in shared memory with room for the next power of two.
__device__ void write_sorted(i64* room, int size, i64 row, int k, int* distances, i64* indices) {
    const int padded = power_of_two(size);
    for (int i = size + threadIdx.x; i < padded; i += blockDim.x) room[i] = UNLIMITED;
    for (int length = 2; length <= padded; length *= 2)
        for (int step = length / 2; step; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < padded / 2; i += blockDim.x) {
                const int low = 2 * i - (i & (step - 1)), high = low + step;
                const i64 x = room[low], y = room[high];
                if ((x > y) == ((low & length) == 0)) room[low] = y, room[high] = x;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        distances[row * k + i] = i < size ? distance_of(room[i]) : -1;
        indices[row * k + i] = i < size ? id_of(room[i]) : -1;
    }
}

// One block per query. Candidates are proven to hold the k nearest if none was dropped and there are at least k, or if
// there was no limit tighter than the request's: `bounds`, null if it has none.
extern "C" __global__ void order(
    const i64* keys, const u32* counts, const i64* keys_up_to, const i64* bounds, int* distances, i64* indices,
    u32* repairs, i64 capacity, i64 room_size, i64 k) {
    extern __shared__ i64 room[];
    __shared__ int kept;
    const i64 row = blockIdx.x;
    const u32 count = counts[row];
    if (count > capacity || (count < k && keys_up_to[row] != (bounds ? bounds[row] : UNLIMITED))) {
        if (threadIdx.x == 0) repairs[1 + atomicAdd(repairs, 1u)] = (u32)row;
        return;
    }
    keys += row * capacity;
    if (count <= room_size) {
        for (int i = threadIdx.x; i < count; i += blockDim.x) room[i] = keys[i];
        return write_sorted(room, (int)count, row, (int)k, distances, indices);
    }
    i64 low = 0, high = key_of(BITS, (1ll << ID_BITS) - 1);  // narrowed to the k-th smallest key
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        int below = 0;
        for (int i = threadIdx.x; i < count; i += blockDim.x) below += keys[i] <= middle;
        if (block_sum(below) >= k) high = middle;
        else low = middle + 1;
    }
    if (threadIdx.x == 0) kept = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        if (keys[i] <= low) room[atomicAdd(&kept, 1)] = keys[i];
    write_sorted(room, (int)k, row, (int)k, distances, indices);
}

// Blocks take queries off the list. A first sweep counts rows by distance, which gives the distance of the k-th; a
// second keeps all nearer rows and, in order of id, as many at that distance as are still missing. Rows beyond the
// request's own limit do not count.
extern "C" __global__ void __launch_bounds__(256) repair(
    const u32* queries, const u32* reference, const i64* query_labels, const i64* reference_labels,
    const i64* exclude_offsets, const i64* exclude_ids, const u32* repairs, const i64* bounds, int* distances,
    i64* indices, i64 num_references, i64 k) {
    extern __shared__ i64 room[];
    __shared__ u32 histogram[BITS + 1];
    __shared__ __align__(16) u32 code[WORDS];
    __shared__ int level, missing, kept, warp_ties[8];
    const Filters filters = {query_labels, reference_labels, exclude_offsets, exclude_ids};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 rounds = (num_references + 255) / 256;
    for (u32 item = blockIdx.x; item < repairs[0]; item += gridDim.x) {
        const i64 row = repairs[1 + item];
        __syncthreads();
        for (int i = threadIdx.x; i < WORDS; i += 256) code[i] = queries[row * WORDS + i];
        for (int i = threadIdx.x; i <= BITS; i += 256) histogram[i] = 0;
        if (threadIdx.x == 0) kept = 0;
        __syncthreads();
        for (i64 column = threadIdx.x; column < num_references; column += 256)
            if (filters.admit(row, column)) atomicAdd(histogram + distance(code, reference + column * WORDS), 1u);
        __syncthreads();
        if (threadIdx.x == 0) {
            const int farthest = bounds ? distance_of(bounds[row]) : BITS;
            i64 nearer = 0;
            int h = 0;
            while (h < farthest && nearer + histogram[h] < k) nearer += histogram[h++];
            level = min(h, farthest);  // -1: nothing counts
            missing = level < 0 ? 0 : (int)min(k - nearer, (i64)histogram[h]);
        }
        __syncthreads();
        for (i64 round = 0; round < rounds; ++round) {
            const i64 column = 256 * round + threadIdx.x;
            int h = BITS + 1;
            if (column < num_references) {
                h = distance(code, reference + column * WORDS);
                if (h <= level && !filters.admit(row, column)) h = BITS + 1;
            }
            if (h < level) room[atomicAdd(&kept, 1)] = key_of(h, column);
            if (missing == 0 || !__syncthreads_or(h == level)) continue;
            const u32 ties = __ballot_sync(ALL, h == level);
            if (lane == 0) warp_ties[warp] = __popc(ties);
            __syncthreads();
            int before = __popc(ties & ((1u << lane) - 1)), all = 0;
            for (int i = 0; i < 8; ++i) {
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
