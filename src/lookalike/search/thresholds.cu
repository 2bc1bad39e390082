// Where sums start, and how hits are told from them.
//
// A row is within the limit where product * (F F' >> 14) >> shift reaches C - A', with C = ONE - limit - A. Without the
// rounding of F F' >> 14 the product has to reach (C - A') 2^(shift + 14) / (F F'): what the query contributes and what
// the column does take two multiplications. A sum is a float until products are added to its bits. It starts at START less
// that threshold and reaches START where the product does: bit FLAG is set from there on, up to 2^22 above, and not below,
// down to 2^22. Starts err on the side of hits, by a few units of 1 / 16384; distances of hits are computed exactly.

constexpr int FLAG_BIT = 22;
constexpr u32 FLAG = 1 << FLAG_BIT;
constexpr float START = (1 << 23) + (1 << 22);
constexpr float ROOM = 1 << 21;  // that a threshold may lie below zero
constexpr float LARGEST_PRODUCT = 1 << 20;  // and more than `hashing.scheme.PRODUCTS`

struct Extremes {  // of the tables of a scheme
    float least_factor, largest_offset, farthest_offset;
};

struct Threshold {  // the query's part: the sum starts at base + scale * (b - constant * a)
    float scale, constant, base;
};

// The column's part: a, and b = A' a.
__device__ __forceinline__ float2 column_part(const Tail& tail) {
    const float a = tail.factor > 0 ? (float)(1ll << (tail.shift + FACTORS_SHIFT)) / tail.factor : 0.0f;
    return {a, a * tail.offset};
}

__device__ __forceinline__ u32 start_of(const Threshold& row, float a, float b) {
    return __float_as_uint(__fmaf_rn(row.scale, __fmaf_rn(-row.constant, a, b), row.base));
}

// Returns the query's part for a limit; below zero, no row is a hit. Rounding F F' >> 14 down changes a product by up to
// one part in it. That matters where thresholds are negative, and there all products are within LARGEST_PRODUCT. The rest
// of the slack is for rounding floats. Where a threshold might be too low for a float to start with, all rows are hits.
__device__ __forceinline__ Threshold threshold_of(int limit, const Tail& tail, const Extremes& extremes) {
    if (limit < 0) return {0.0f, 0.0f, START - ROOM};
    const float constant = (float)(ONE - limit - tail.offset);
    const float factors = tail.factor * extremes.least_factor;
    const float unit = (float)(1ll << (tail.shift + FACTORS_SHIFT)) / factors;
    const float below = fmaxf(0.0f, extremes.largest_offset - constant) * unit;
    const float rounded = fminf(below, LARGEST_PRODUCT) / (factors / (1 << FACTORS_SHIFT) - 1.0f);
    const float floats = 4.0f + (fabsf(constant) + extremes.farthest_offset) * unit / LARGEST_PRODUCT;
    const bool is_safe = factors >= 2 << FACTORS_SHIFT && below <= ROOM && rounded + floats <= LARGEST_PRODUCT;
    if (limit >= FARTHEST || !is_safe) return {0.0f, 0.0f, START + ROOM};
    return {1.0f / tail.factor, constant, START + rounded + floats};
}
