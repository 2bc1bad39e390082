// What a search computes once: codes unpacked into rows, the columns' parts of sums, and labels in 32 bits.

struct Group {  // of dimensions that have as many bits each
    int width, count;
};

// Unpacks `n` codes of `bytes` bytes, 16 bytes of a row per thread. A code has a byte for the factor, one for the offset,
// and its groups' numbers, which name levels: those of a group come after those of the groups before it. A group is given
// as width << 32 | count. `parts` may be null, and so may `labels` with `marks`; `wide` is set if a label has more than 32
// bits.
extern "C" __global__ void prepare(
    const unsigned char* codes, const i64* labels, const signed char* levels, const int* factors, const int* offsets,
    i64 shift, i64 group0, i64 group1, i64 group2, i64 group3, i64 group4, i64 group5, u32* rows, float2* parts,
    int* marks, u32* wide, i64 n, i64 bytes) {
    constexpr int UNITS = WORDS / 4, HEADER = 16;
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = i / UNITS;
    const int unit = (int)(i % UNITS);
    if (row >= n) return;
    const unsigned char* const code = codes + row * bytes;
    if (unit == UNITS - 1) {
        const Tail tail = {factors[code[0]], offsets[code[1]], (int)shift, 0};
        *reinterpret_cast<Tail*>(rows + row * WORDS + VALUES) = tail;
        if (parts) parts[row] = column_part(tail);
        if (labels) {
            marks[row] = mark_of(labels[row]);
            if (labels[row] >> 32) *wide = 1;
        }
        return;
    }
    const i64 packed[6] = {group0, group1, group2, group3, group4, group5};
    u32 words[4] = {};
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        int place = 16 * unit + j, bit = HEADER, level = 0;
        bool found = false;
#pragma unroll
        for (int group = 0; group < 6; ++group) {
            const int width = (int)(packed[group] >> 32), count = (int)packed[group];
            if (found) continue;
            if (place < count) {
                bit += width * place;
                const int after = bit % 8 + width > 8 ? code[bit / 8 + 1] : 0;  // a number lies in one byte or in two
                level += (code[bit / 8] | after << 8) >> bit % 8 & ((1 << width) - 1);
                found = true;
            } else
                place -= count, bit += width * count, level += width ? 1 << width : 0;
        }
        if (found) words[j / 4] |= (u32)(unsigned char)levels[level] << 8 * (j % 4);
    }
    *reinterpret_cast<uint4*>(rows + row * WORDS + 4 * unit) = {words[0], words[1], words[2], words[3]};
}
