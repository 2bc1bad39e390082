// Products of values, with queries in registers.

// Lane t of four holds 16 bytes of every 64 of a row, which are its share of two products; of the last 32, if there is
// one product more, 8. The order of values within a product is free as long as both operands agree.
template <class Load>
__device__ __forceinline__ void load_part(u32 (&part)[2 * SLICES], Load load) {
#pragma unroll
    for (int s = 0; s + 1 < SLICES; s += 2) {
        const uint4 words = load.four(s);
        part[2 * s] = words.x, part[2 * s + 1] = words.y, part[2 * s + 2] = words.z, part[2 * s + 3] = words.w;
    }
    if constexpr (SLICES % 2) {
        const uint2 words = load.two(SLICES - 1);
        part[2 * SLICES - 2] = words.x, part[2 * SLICES - 1] = words.y;
    }
}

struct FromRow {  // in global memory
    const u32* row;

    __device__ __forceinline__ uint4 four(int s) const {
        return __ldg(reinterpret_cast<const uint4*>(row + 8 * s + 4 * (threadIdx.x % 4)));
    }
    __device__ __forceinline__ uint2 two(int s) const {
        return __ldg(reinterpret_cast<const uint2*>(row + 8 * s + 2 * (threadIdx.x % 4)));
    }
};

// Loads sixteen queries per tile as left operands: a lane holds rows g and g + 8. Rows past the end repeat the last.
__device__ __forceinline__ void load_rows(u32 (&a)[TILES][SLICES][4], const u32* queries, i64 first, i64 end) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            u32 part[2 * SLICES];
            load_part(part, FromRow{queries + min(first + 16 * m + g + 8 * h, end - 1) * WORDS});
#pragma unroll
            for (int s = 0; s < SLICES; ++s) a[m][s][h] = part[2 * s], a[m][s][2 + h] = part[2 * s + 1];
        }
}

__device__ __forceinline__ void multiply_all(
    u32 (&sums)[TILES][4], const u32 (&a)[TILES][SLICES][4], const u32 (&b)[2 * SLICES]) {
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
        for (int m = 0; m < TILES; ++m) multiply_add(sums[m], a[m][s], b[2 * s], b[2 * s + 1]);
}
