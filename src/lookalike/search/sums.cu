// Where sums start, and how hits are told from them.
//
// A sum is a float until products are added to its bits. It starts at START + (limit - weight(x) - weight(y)) / 2,
// rounded down, and reaches START for rows up to the limit, because h = weight(x) + weight(y) - 2 and(x, y). From START on
// and nowhere below, down to NEVER, bit FLAG is set. Parts of row and column are exact, and so is the sum.

constexpr u32 FLAG = 1 << 20, START = 0x4b000000 + FLAG, START_NEVER = START - FLAG / 2;
constexpr float ROW_START = 1 << 22, COLUMN_START = (1 << 22) + FLAG, NEVER = -(1 << 18);

__device__ __forceinline__ float row_part(int limit, int weight) { return ROW_START + 0.5f * (limit - weight); }
__device__ __forceinline__ int column_part(int weight) { return __float_as_int(COLUMN_START - 0.5f * weight); }
__device__ __forceinline__ int no_column_part() { return __float_as_int(COLUMN_START + NEVER); }

// Gathers the flags of sums: that of x[8 i + j] goes to bit 8 (j % 4) + 2 i + j / 4.
template <int COUNT>
__device__ __forceinline__ u32 flags_of(const u32* x) {
    u32 flags = 0;
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const u32 low = __byte_perm(x[4 * i], x[4 * i + 1], 0x62), high = __byte_perm(x[4 * i + 2], x[4 * i + 3], 0x62);
        const u32 four = __byte_perm(low, high, 0x5410);
        flags |= (i < 4 ? four >> (4 - i) : four << (i - 4)) & 0x01010101u << i;
    }
    return flags;
}

__device__ __forceinline__ int place_of_flag(u32 bit) { return 8 * (bit >> 1 & 3) + 4 * (bit & 1) + (bit >> 3); }

// Returns whether the flag of any sum of any lane is set. One instruction takes two sums.
template <int COUNT>
__device__ __forceinline__ bool any_flag(const u32* x) {
    u32 any[2] = {};
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
#pragma unroll
        for (int j = 0; j < 2; ++j) any[j] = either(any[j], x[i + 2 * j], x[i + 2 * j + 1]);
    return __any_sync(ALL, (any[0] | any[1]) & FLAG);
}
