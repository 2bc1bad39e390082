// The sample of the reference.

// Copies the sample's rows and marks, and computes its offsets. `ids` names its rows in ascending order, and `order`
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
    offsets[place] = sample_offset((int)rank, row, weights);
    if (marks) sample_marks[place] = marks[row];
}
