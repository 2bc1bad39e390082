// What a row of sign codes is, and how far apart two are.

constexpr int BITS = 32 * WORDS;
constexpr bool COMPLEMENT = WORDS == 4;  // [x, ~x] fills the 256 bits of a product, which then counts equal bits
constexpr int SLICES = COMPLEMENT ? 1 : WORDS / 8;  // products per pair of codes
constexpr int FARTHEST = BITS;

__device__ __forceinline__ int distance(const u32* x, const u32* y) {
    int sum = 0;
#pragma unroll 4
    for (int w = 0; w < WORDS; w += 4) {
        const uint4 p = *reinterpret_cast<const uint4*>(x + w), q = __ldg(reinterpret_cast<const uint4*>(y + w));
        sum += __popc(p.x ^ q.x) + __popc(p.y ^ q.y) + __popc(p.z ^ q.z) + __popc(p.w ^ q.w);
    }
    return sum;
}

// The scan appends ids to lists, because it knows that their rows are within the limit, and would wait for the codes.
__device__ __forceinline__ i64 measured(i64 id, const u32* query, const u32* reference) {
    return key_of(distance(query, reference + id * WORDS), id);
}

// Returns the distance of a code to row `first` + lane, or to the last row. Lanes read 16 bytes each of the same rows side
// by side, and pass the sums on to the lanes that want them.
__device__ __forceinline__ int distance_by_warp(const u32* code, const u32* reference, i64 first, i64 num_rows) {
    constexpr int SHARE = WORDS / 4, AT_ONCE = 32 / SHARE;  // lanes per row, rows at a time
    const int lane = threadIdx.x % 32;
    if constexpr (32 % SHARE) return distance(code, reference + min(first + lane, num_rows - 1) * WORDS);
    const int part = 4 * (lane % SHARE);
    const uint4 x = *reinterpret_cast<const uint4*>(code + part);
    u32 found = 0;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        const i64 row = min(first + AT_ONCE * i + lane / SHARE, num_rows - 1);
        const uint4 y = __ldg(reinterpret_cast<const uint4*>(reference + row * WORDS + part));
        u32 sum = __popc(x.x ^ y.x) + __popc(x.y ^ y.y) + __popc(x.z ^ y.z) + __popc(x.w ^ y.w);
#pragma unroll
        for (int other = 1; other < SHARE; other *= 2) sum += __shfl_xor_sync(ALL, sum, other);
        const u32 passed = __shfl_sync(ALL, sum, lane % AT_ONCE * SHARE);
        if (lane / AT_ONCE == i) found = passed;
    }
    return (int)found;
}
