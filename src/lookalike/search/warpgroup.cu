// What four warps of a Hopper GPU (sm_90a) do together: copy to shared memory, and multiply from there, asynchronously.

#ifdef HOPPER
constexpr int WIDTH = 64;  // columns of a product; it has as many rows
constexpr int SUMS = WIDTH / 2;  // of a product that each lane holds
constexpr int CORE = 128;  // bytes of a core matrix, 16 of each of 8 columns

__device__ __forceinline__ void copy_16_bytes(void* to, const void* from) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(address), "l"(from) : "memory");
}

// Waits for this thread's copies and shows them to products. Others see them after a barrier.
__device__ __forceinline__ void finish_copies() {
    asm volatile("cp.async.wait_all;\n\tfence.proxy.async.shared::cta;" : : : "memory");
}

// Keeps the compiler from moving accesses to registers across; products in flight may use them.
__device__ __forceinline__ void hold(u32 (&sums)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) asm volatile("" : "+r"(sums[i]) : : "memory");
}

__device__ __forceinline__ void multiply_slice(u32 (&d)[SUMS], const u32 (&a)[4], unsigned long long columns) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, 1;"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
          "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
          "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
          "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(columns));
}

// Starts to add to sums[4 j + i] the bits that two codes share: row g + 8 (i / 2) of this warp's sixteen, and column
// 8 j + 2 t + i % 2. Of each code, `columns` holds the first 16 bytes in core matrices, column after column; the next 16
// bytes lie `LEAD` bytes farther, and so on. Where a code has only 16 bytes, rows are padded with zeros, so that it does
// not matter by what columns are padded. Sums must not be touched before `await`.
template <int LEAD>
__device__ __forceinline__ void multiply(u32 (&sums)[SUMS], const u32 (&a)[SLICES][4], const char* columns) {
    constexpr unsigned long long LAYOUT =
        (unsigned long long)(CORE >> 4) << 32 | (unsigned long long)(WORDS == 4 ? 0 : LEAD >> 4) << 16;
    const u32 address = (u32)__cvta_generic_to_shared(columns);
    hold(sums);
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#pragma unroll
    for (int s = 0; s < SLICES; ++s) multiply_slice(sums, a[s], LAYOUT | (address + 2 * s * LEAD) >> 4);
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

// Waits for these sums, and for all that were started before the last LATER ones.
template <int LATER>
__device__ __forceinline__ void await(u32 (&sums)[SUMS]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LATER) : "memory");
    hold(sums);
}
#endif
