// Products of codes on binary tensor cores (sm_80 and later), with queries in registers.

// Lane t of four holds LOAD words of every 4 * LOAD of a code. The order of bits within a product is free as long as
// both operands agree, so each lane takes what one wide load returns and codes keep their natural layout.
constexpr int LOAD = COMPLEMENT ? 1 : WORDS % 16 ? 2 : 4;

__device__ __forceinline__ void load_part(u32 (&part)[2 * SLICES], const u32* code) {
    if constexpr (LOAD == 1) {
        part[0] = __ldg(code);
        part[1] = ~part[0];
    } else {
#pragma unroll
        for (int w = 0; w < 2 * SLICES; w += LOAD) {
            if constexpr (LOAD == 2) {
                const uint2 words = __ldg(reinterpret_cast<const uint2*>(code + 4 * w));
                part[w] = words.x, part[w + 1] = words.y;
            } else {
                const uint4 words = __ldg(reinterpret_cast<const uint4*>(code + 4 * w));
                part[w] = words.x, part[w + 1] = words.y, part[w + 2] = words.z, part[w + 3] = words.w;
            }
        }
    }
}

// Returns the value in a way that the compiler cannot recompute, so that it stays in a register of its own. Operands of
// a product are four consecutive registers, and refilling them in every step costs more than the product.
__device__ __forceinline__ u32 pinned(u32 value) { return __shfl_sync(ALL, value, threadIdx.x % 32); }

// Hides the terms of a pointer from the compiler, which would otherwise add them up again in every step.
__device__ __forceinline__ const int* whole(const int* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// Loads sixteen queries per tile as left operands: a lane holds rows g and g + 8. Rows past the end repeat the last.
__device__ __forceinline__ void load_rows(u32 (&a)[TILES][SLICES][4], const u32* queries, i64 first, i64 end) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < TILES; ++m) {
        u32 upper[2 * SLICES], lower[2 * SLICES];
        const i64 row = first + 16 * m + g;
        load_part(upper, queries + min(row, end - 1) * WORDS + LOAD * t);
        load_part(lower, queries + min(row + 8, end - 1) * WORDS + LOAD * t);
#pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            a[m][s][0] = upper[2 * s], a[m][s][1] = lower[2 * s];
            a[m][s][2] = COMPLEMENT ? pinned(upper[1]) : upper[2 * s + 1];
            a[m][s][3] = COMPLEMENT ? pinned(lower[1]) : lower[2 * s + 1];
        }
    }
}

// sum[0..1]: row g, columns 2t and 2t + 1; sum[2..3]: row g + 8. XOR is emulated on Hopper, AND is not.
__device__ __forceinline__ void multiply_add(u32 (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_all(
    u32 (&sums)[TILES][4], const u32 (&a)[TILES][SLICES][4], const u32 (&b)[2 * SLICES]) {
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
        for (int m = 0; m < TILES; ++m) multiply_add(sums[m], a[m][s], b[2 * s], b[2 * s + 1]);
}
