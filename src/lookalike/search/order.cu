// Candidates -> neighbours, in order.

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

// Sorts keys of a warp, PER of each lane; bitonic, in registers. Key i is keys[i % PER] of lane i / PER.
template <class Key, int PER>
__device__ __forceinline__ void sort_in_lanes(Key (&keys)[PER]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int length = 2; length <= 32 * PER; length *= 2)
#pragma unroll
        for (int step = length / 2; step; step /= 2)
#pragma unroll
            for (int i = 0; i < PER; ++i) {
                const bool descends = length < PER ? i & length : lane & length / PER;
                if (step >= PER) {
                    const Key other = __shfl_xor_sync(ALL, keys[i], step / PER);
                    const bool keeps_low = descends == (bool)(lane & step / PER);
                    if (keeps_low == other < keys[i]) keys[i] = other;
                } else if (!(i & step)) {
                    const Key x = keys[i], y = keys[i + step];
                    const bool swap = descends != y < x;
                    keys[i] = swap ? y : x;
                    keys[i + step] = swap ? x : y;
                }
            }
}

// Narrows keys to 32 bits where their distances differ little and ids are small enough, which makes sorting cheaper.
struct Narrow {
    int nearest, id_bits;

    __device__ u32 operator()(i64 key) const {
        return key == UNLIMITED ? ALL : (u32)(distance_of(key) - nearest) << id_bits | (u32)id_of(key);
    }
    __device__ i64 key_of_narrow(u32 key) const {
        return key_of(nearest + (int)(key >> id_bits), key & (1u << id_bits) - 1);
    }
};

// One warp per query: writes the first k of up to 32 * PER keys in order. `room` takes as many.
template <int PER>
__device__ __forceinline__ void write_sorted_by_warp(
    const i64* keys, int count, const u32* query, const u32* reference, i64* room, i64 row, int k, int id_bits,
    int* distances, i64* indices) {
    const int lane = threadIdx.x % 32;
    i64 wide[PER];
    u32 nearest = FARTHEST, farthest = 0;
#pragma unroll
    for (int i = 0; i < PER; ++i) {
        const int place = 32 * i + lane;
        wide[i] = UNLIMITED;
        if (place >= count) continue;
        wide[i] = measured(keys[place], query, reference);
        nearest = min(nearest, (u32)distance_of(wide[i]));
        farthest = max(farthest, (u32)distance_of(wide[i]));
    }
    const Narrow narrow = {(int)__reduce_min_sync(ALL, nearest), id_bits};
    const i64 levels = (int)__reduce_max_sync(ALL, farthest) - narrow.nearest + 1;
    if (levels << id_bits < ALL) {
        u32 keys32[PER];
#pragma unroll
        for (int i = 0; i < PER; ++i) keys32[i] = narrow(wide[i]);
        sort_in_lanes(keys32);
#pragma unroll
        for (int i = 0; i < PER; ++i) wide[i] = narrow.key_of_narrow(keys32[i]);
    } else
        sort_in_lanes(wide);
#pragma unroll
    for (int i = 0; i < PER; ++i) room[PER * lane + i] = wide[i];
    __syncwarp();
    for (int i = lane; i < k; i += 32) {
        distances[row * k + i] = i < count ? distance_of(room[i]) : -1;
        indices[row * k + i] = i < count ? id_of(room[i]) : -1;
    }
}

// One block for a query with many candidates: finds the k-th smallest key first.
__device__ void write_selected_by_block(
    i64* keys, int count, const u32* query, const u32* reference, i64* room, i64 room_size, i64 row, int k,
    int* distances, i64* indices) {
    __shared__ int kept;
    for (int i = threadIdx.x; i < count; i += blockDim.x) keys[i] = measured(keys[i], query, reference);
    __syncthreads();
    if (count <= room_size) {
        for (int i = threadIdx.x; i < count; i += blockDim.x) room[i] = keys[i];
        return write_sorted(room, count, row, k, distances, indices);
    }
    i64 low = 0, high = key_of(FARTHEST, (1ll << ID_BITS) - 1);  // narrowed to the k-th smallest key
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
    write_sorted(room, k, row, k, distances, indices);
}

constexpr int LANE_KEYS = 16;  // that a lane sorts in registers, at most

// One warp per query, then one block for each that has too many candidates. They are proven to hold the k nearest if
// none was dropped and there are at least k, or if there was no limit tighter than the request's: `bounds`, null if it
// has none.
extern "C" __global__ void __launch_bounds__(128) order(
    const u32* queries, const u32* reference, i64* keys, const u32* counts, const i64* keys_up_to, const i64* bounds,
    int* distances, i64* indices, u32* repairs, i64 num_queries, i64 capacity, i64 room_size, i64 k, i64 id_bits) {
    extern __shared__ __align__(128) i64 room[];
    const int warp = threadIdx.x / 32;
    const i64 first = (i64)blockIdx.x * 4;
    auto is_proven = [&](i64 row) {
        const i64 complete = bounds ? bounds[row] : UNLIMITED;
        return counts[row] <= capacity && (counts[row] >= k || keys_up_to[row] == complete);
    };
    const i64 own = first + warp;
    if (own < num_queries) {
        const int count = (int)min((i64)counts[own], capacity), longest = max(count, (int)k);
        i64* const place = room + 32 * LANE_KEYS * warp;
        const i64* const list = keys + own * capacity;
        const u32* const query = queries + own * WORDS;
        if (!is_proven(own)) {
            if (threadIdx.x % 32 == 0) repairs[1 + atomicAdd(repairs, 1u)] = (u32)own;
        } else if (longest <= 256)
            write_sorted_by_warp<8>(
                list, count, query, reference, place, own, (int)k, (int)id_bits, distances, indices);
        else if (longest <= 32 * LANE_KEYS)
            write_sorted_by_warp<LANE_KEYS>(
                list, count, query, reference, place, own, (int)k, (int)id_bits, distances, indices);
    }
    for (i64 row = first; row < min(first + 4, num_queries); ++row)
        if (is_proven(row) && max((i64)counts[row], k) > 32 * LANE_KEYS)
            write_selected_by_block(
                keys + row * capacity, (int)counts[row], queries + row * WORDS, reference, room, room_size, row, (int)k,
                distances, indices);
}
