// Stands in for bytes.cu: the product element by element as the PTX manual places it, and copies that arrive as late as
// they may, when they are finished. Until then, their place holds rubbish.

// mma.m16n8k32 with .s8 operands; byte i of a fragment lies in register i / 4. A: row = group (+ 8 in registers 1 and 3),
// column = 4 * member + i % 4 (+ 16 in registers 2 and 3). B: row = 4 * member + i % 4 (+ 16 in register 1), column =
// group. C as for bits.
inline void multiply_add(u32 (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const u32 words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const unsigned lane = threadIdx.x % 32;
    const auto added = emulator::exchange(words, 6, [lane](auto& table) {
        std::pair<int[4], int> result = {};
        for (int i = 0; i < 4; ++i) {
            const unsigned row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + i % 2;
            for (unsigned k = 0; k < 32; k += 4) {
                const u32 left = table[4 * (row % 8) + k % 16 / 4][(row >= 8) + 2 * (k >= 16)];
                const u32 right = table[4 * column + k % 16 / 4][4 + (k >= 16)];
                result.first[i] = __dp4a((int)left, (int)right, result.first[i]);
            }
        }
        return result;
    });
    for (int i = 0; i < 4; ++i) sum[i] += (u32)added.first[i];
}

namespace emulator {
struct Copy {
    void* to;
    const void* from;
};
std::vector<Copy> copies[1024];  // of each thread, on their way
}  // namespace emulator

inline void copy_16_bytes(void* to, const void* from) {
    for (const void* address : {(const void*)to, from})
        if ((uintptr_t)address % 16) __builtin_trap();
    std::memset(to, 0xa5, 16);
    emulator::copies[threadIdx.x].push_back({to, from});
}

inline void finish_copies() {
    for (auto& copy : emulator::copies[threadIdx.x]) std::memcpy(copy.to, copy.from, 16);
    emulator::copies[threadIdx.x].clear();
}
