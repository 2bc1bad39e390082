// What the scan of codes of several bits asks of the hardware: products of bytes on tensor cores, and copies to shared
// memory, by any GPU of compute capability 8.0 or later.

// sum[0..1]: row g, columns 2t and 2t + 1; sum[2..3]: row g + 8.
__device__ __forceinline__ void multiply_add(u32 (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void copy_16_bytes(void* to, const void* from) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(address), "l"(from) : "memory");
}

// Waits for this thread's copies. Others see them after a barrier.
__device__ __forceinline__ void finish_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }
