// Where sums start, and how hits are told from them.
//
// A sum is a float until products are added to its bits. It starts at START + (limit - weight(x) - weight(y)) / 2,
// rounded down, and reaches START for rows up to the limit, because h = weight(x) + weight(y) - 2 and(x, y). From START on
// and nowhere below, down to NEVER, bit FLAG is set. Parts of row and column are exact, and so is the sum.

constexpr int FLAG_BIT = 20;
constexpr u32 FLAG = 1 << FLAG_BIT, START = 0x4b000000 + FLAG, START_NEVER = START - FLAG / 2;
constexpr float ROW_START = 1 << 22, COLUMN_START = (1 << 22) + FLAG, NEVER = -(1 << 18);

__device__ __forceinline__ float row_part(int limit, int weight) { return ROW_START + 0.5f * (limit - weight); }
__device__ __forceinline__ int column_part(int weight) { return __float_as_int(COLUMN_START - 0.5f * weight); }
__device__ __forceinline__ int no_column_part() { return __float_as_int(COLUMN_START + NEVER); }
