// What a search computes once: weights, and labels in 32 bits.

__device__ __forceinline__ int weight_of(const u32* code) {
    int sum = 0;
#pragma unroll 4
    for (int w = 0; w < WORDS; w += 4) {
        const uint4 p = __ldg(reinterpret_cast<const uint4*>(code + w));
        sum += __popc(p.x) + __popc(p.y) + __popc(p.z) + __popc(p.w);
    }
    return sum;
}

// Weighs `n` codes and all that would follow up to `padded`, which count as none. `parts` may be null, and so may
// `labels` with `marks`; `wide` is set if a label has more than 32 bits.
extern "C" __global__ void prepare(
    const u32* codes, const i64* labels, int* weights, int* parts, int* marks, u32* wide, i64 n, i64 padded) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= padded) return;
    const int weight = i < n ? weight_of(codes + i * WORDS) : 0;
    weights[i] = weight;
    if (parts) parts[i] = i < n ? column_part(weight) : no_column_part();
    if (!labels || i >= n) return;
    marks[i] = mark_of(labels[i]);
    if (labels[i] >> 32) *wide = 1;
}
