// What a search computes once: weights, labels in 32 bits, and the sample of the reference.

__device__ __forceinline__ int weight_of(const u32* code) {
    int sum = 0;
#pragma unroll 4
    for (int w = 0; w < WORDS; w += 4) {
        const uint4 p = __ldg(reinterpret_cast<const uint4*>(code + w));
        sum += __popc(p.x) + __popc(p.y) + __popc(p.z) + __popc(p.w);
    }
    return sum;
}

// Hashes a label to 32 bits; different labels rarely share a mark, and those of up to 32 bits never.
__device__ __forceinline__ int mark_of(i64 label) { return (int)(label ^ label >> 32); }

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

// Copies the sample's codes and marks, and computes its offsets. `ids` names its rows in ascending order, and `order`
// which of them is in which place.
extern "C" __global__ void draw(
    const u32* reference, const int* weights, const int* marks, const i64* ids, const int* order, u32* codes,
    int* offsets, int* sample_marks, i64 size) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, place = i / (WORDS / 4);
    if (place >= size) return;
    const i64 rank = order[place], row = ids[rank], part = 4 * (i % (WORDS / 4));
    *reinterpret_cast<uint4*>(codes + place * WORDS + part) =
        __ldg(reinterpret_cast<const uint4*>(reference + row * WORDS + part));
    if (part) return;
    offsets[place] = (1 << PLACE_BITS) - 1 - (int)rank - (COMPLEMENT ? 0 : weights[row] << PLACE_BITS);
    if (marks) sample_marks[place] = marks[row];
}
