// Definitions shared by the kernels. Files are joined into one program for codes of one kind and length: sign codes of
// WORDS 32-bit words, or codes of several bits, unpacked, of 32 SLICES values.
//
//   keys.cu      types, keys, labels and exclude lists
//   signs.cu, integers.cu    what a row is and how far apart two are, for either kind
//   survey.cu, values_survey.cu, limits.cu    a limit per query, from a sample
//   scan.cu, hopper.cu, values_scan.cu    all rows within that limit, on tensor cores
//   order.cu     the k smallest of them in order
//   repair.cu    the queries that they do not answer, searched again
//
// A key is distance << 40 | id: keys sort like the answer, and no two rows share one.

typedef unsigned u32;
typedef long long i64;

constexpr u32 ALL = 0xffffffffu;
constexpr int ROWS = 16 * TILES;  // that a warp holds in registers
constexpr int ID_BITS = 40;
constexpr i64 UNLIMITED = 0x7fffffffffffffff;

template <bool VALUE>
struct Choice {
    static constexpr bool value = VALUE;
};

template <int VALUE>
struct Constant {
    static constexpr int value = VALUE;
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

__device__ __forceinline__ u32 either(u32 x, u32 y, u32 z) {  // in one instruction, which the compiler does not find
    u32 any;
    asm("lop3.b32 %0, %1, %2, %3, 0xfe;" : "=r"(any) : "r"(x), "r"(y), "r"(z));
    return any;
}

// Hashes a label to 32 bits; different labels rarely share a mark, and those of up to 32 bits never.
__device__ __forceinline__ int mark_of(i64 label) { return (int)(label ^ label >> 32); }
