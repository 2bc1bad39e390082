// What a row of codes of several bits is, unpacked, and how far apart two are: integers only, as in `hashing.scheme`.
//
// A row has 32 SLICES bytes, one for each value, and sixteen more: its factor, its offset, and the shift of its scheme.

constexpr int VALUES = 8 * SLICES;  // words that hold values
constexpr int WORDS = VALUES + 4;
constexpr int FARTHEST = (1 << 15) - 1;
constexpr int ONE = 1 << 14;  // cosine 1
constexpr int FACTORS_SHIFT = 14;

struct __align__(16) Tail {
    int factor, offset, shift, unused;
};

// Returns the distance that the product of the values of two rows stands for. `rest` is ONE less one of the offsets.
__device__ __forceinline__ int distance_of_product(int product, int factor, int rest, const Tail& other) {
    const int scaled = product * (factor * other.factor >> FACTORS_SHIFT) >> other.shift;
    return min(max(rest - scaled - other.offset, 0), FARTHEST);
}

__device__ __forceinline__ int distance(const u32* x, const u32* y) {
    int product = 0;
#pragma unroll 4
    for (int w = 0; w < VALUES; w += 4) {
        const uint4 p = *reinterpret_cast<const uint4*>(x + w), q = __ldg(reinterpret_cast<const uint4*>(y + w));
        product = __dp4a((int)p.x, (int)q.x, product);
        product = __dp4a((int)p.y, (int)q.y, product);
        product = __dp4a((int)p.z, (int)q.z, product);
        product = __dp4a((int)p.w, (int)q.w, product);
    }
    const Tail own = *reinterpret_cast<const Tail*>(x + VALUES), other = *reinterpret_cast<const Tail*>(y + VALUES);
    return distance_of_product(product, own.factor, ONE - own.offset, other);
}

// The scan knows distances, so its lists hold keys.
__device__ __forceinline__ i64 measured(i64 key, const u32*, const u32*) { return key; }

// Returns the distance of a code to row `first` + lane, or to the last row.
__device__ __forceinline__ int distance_by_warp(const u32* code, const u32* reference, i64 first, i64 num_rows) {
    return distance(code, reference + min(first + (i64)(threadIdx.x % 32), num_rows - 1) * WORDS);
}
