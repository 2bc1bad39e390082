// From the best rows of the groups of a sample to a limit.

constexpr int GROUPS = 512;  // groups of the sample, each of which names its best row

// top = max(top, value) unless x == y, in two instructions, which the compiler does not find.
__device__ __forceinline__ void raise_unless(int x, int y, int& top, int value) {
    asm("{ .reg .pred differ; setp.ne.s32 differ, %1, %2; @differ max.s32 %0, %0, %3; }"
        : "+r"(top) : "r"(x), "r"(y), "r"(value));
}

// Returns the value of the group of the rank that a limit should have, for a warp's query; flipped, so that it compares
// as unsigned. `wanted` nearest rows in the sample lie in GROUPS (1 - exp(-wanted / GROUPS)) groups on average, so this is
// the best row of the group of that rank.
__device__ __forceinline__ u32 value_of_rank(
    const int* best, const i64* exclude_offsets, i64 row, i64 k, i64 spare, double share, double deviations) {
    const int lane = threadIdx.x % 32;
    const i64 asked = k + (exclude_offsets ? min(exclude_offsets[row + 1] - exclude_offsets[row], spare) : 0);
    const float mean = (float)((double)asked * share);
    const float wanted = mean + (float)deviations * sqrtf(mean) + 1.0f;
    const int rank = max(1, min(GROUPS, (int)ceilf(GROUPS * (1.0f - expf(-wanted / GROUPS)))));
    u32 values[GROUPS / 32];
#pragma unroll
    for (int i = 0; i < GROUPS / 32; ++i) values[i] = (u32)best[32 * i + lane] ^ 0x80000000u;
    u32 found = 0;  // the largest value that `rank` groups reach
    for (u32 bit = 0x80000000u; bit; bit >>= 1) {
        int reached = 0;
#pragma unroll
        for (int i = 0; i < GROUPS / 32; ++i) reached += values[i] >= (found | bit);
        if ((int)__reduce_add_sync(ALL, (u32)reached) >= rank) found |= bit;
    }
    return found;
}
