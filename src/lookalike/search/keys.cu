// Definitions shared by the kernels. The files are joined into one program, compiled for codes of WORDS 32-bit words.
//
//   keys.cu      types, keys, labels and exclude lists
//   survey.cu    a limit per query, from a sample
//   hamming.cu   all rows within that limit, on binary tensor cores
//   order.cu     the k smallest of them in order; repair of the queries they do not answer
//
// A key is distance << 40 | id: keys sort like the answer, and no two rows share one.

typedef unsigned u32;
typedef long long i64;

constexpr u32 ALL = 0xffffffffu;
constexpr int BITS = 32 * WORDS;
constexpr bool COMPLEMENT = WORDS == 4;  // [x, ~x] fills the 256 bits of a product, which then counts equal bits
constexpr int SLICES = COMPLEMENT ? 1 : WORDS / 8;  // products per pair of codes
constexpr int ROWS = 16 * TILES;
constexpr int ID_BITS = 40;
constexpr i64 UNLIMITED = 0x7fffffffffffffff;

template <bool VALUE>
struct Choice {
    static constexpr bool value = VALUE;
};

struct Filters {  // rows to leave out; each pair of pointers may be null
    const i64 *query_labels, *reference_labels, *exclude_offsets, *exclude_ids;

    __device__ __forceinline__ bool admit(i64 row, i64 column) const {
        return !shares_label(row, column) && !is_listed(row, column);
    }

    __device__ __forceinline__ bool shares_label(i64 row, i64 column) const {
        return query_labels && query_labels[row] == reference_labels[column];
    }

    __device__ __forceinline__ bool is_listed(i64 row, i64 column) const {
        if (!exclude_offsets) return false;
        i64 low = exclude_offsets[row];
        const i64 end = exclude_offsets[row + 1];
        for (i64 high = end; low < high;) {
            const i64 middle = (low + high) >> 1;
            if (exclude_ids[middle] < column) low = middle + 1;
            else high = middle;
        }
        return low < end && exclude_ids[low] == column;
    }
};

__device__ __forceinline__ i64 key_of(int distance, i64 id) { return (i64)distance << ID_BITS | id; }
__device__ __forceinline__ int distance_of(i64 key) { return (int)(key >> ID_BITS); }
__device__ __forceinline__ i64 id_of(i64 key) { return key & ((1ll << ID_BITS) - 1); }

__device__ __forceinline__ int distance(const u32* x, const u32* y) {
    int sum = 0;
#pragma unroll 4
    for (int w = 0; w < WORDS; w += 4) {
        const uint4 p = *reinterpret_cast<const uint4*>(x + w), q = __ldg(reinterpret_cast<const uint4*>(y + w));
        sum += __popc(p.x ^ q.x) + __popc(p.y ^ q.y) + __popc(p.z ^ q.z) + __popc(p.w ^ q.w);
    }
    return sum;
}

__device__ __forceinline__ u32 either(u32 x, u32 y, u32 z) {  // in one instruction, which the compiler does not find
    u32 any;
    asm("lop3.b32 %0, %1, %2, %3, 0xfe;" : "=r"(any) : "r"(x), "r"(y), "r"(z));
    return any;
}
