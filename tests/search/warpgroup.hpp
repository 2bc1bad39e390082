// Stands in for warpgroup.cu: the product of a warpgroup, element by element as the PTX manual places them.
//
// What a GPU may do later, this does as late as it may: products read their columns and add to their sums when they are
// awaited, and copies arrive when they are finished. Until then, the place of a copy holds rubbish. So a kernel that reads
// sums or stages too early, or fills a stage that is still multiplied, gives wrong answers here.

#ifdef HOPPER
constexpr int WIDTH = 64, SUMS = WIDTH / 2, CORE = 128;

namespace emulator {
struct Copy {
    void* to;
    const void* from;
};
struct Product {
    u32* sums;
    const u32 (*a)[4];
    const char* columns;
    unsigned lead;
};
std::vector<Copy> copies[1024];  // of each thread, on their way
std::vector<Product> products[1024];
}  // namespace emulator

inline void copy_16_bytes(void* to, const void* from) {
    std::memset(to, 0xa5, 16);
    emulator::copies[threadIdx.x].push_back({to, from});
}

inline void finish_copies() {
    for (auto& copy : emulator::copies[threadIdx.x]) std::memcpy(copy.to, copy.from, 16);
    emulator::copies[threadIdx.x].clear();
}

// wgmma m64nNk256 with .b1 operands and .and.popc. A: as m16n8k256 places it, sixteen rows per warp. B in core matrices:
// 16 bytes of each of 8 columns side by side, the next 8 columns CORE bytes farther and the next 16 bytes LEAD. D: row =
// group (+ 8 in registers 4 j + 2 and 4 j + 3), column = 8 j + 2 * member + register % 2.
template <int LEAD>
void multiply(u32 (&sums)[SUMS], const u32 (&a)[SLICES][4], const char* columns) {
    emulator::products[threadIdx.x].push_back({sums, a, columns, WORDS == 4 ? 0 : LEAD});
}

inline void multiply_now(const emulator::Product& product) {
    const auto [sums, a, columns, lead] = product;
    const unsigned warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    auto& rows = emulator::rows[warpgroup];
    for (int s = 0; s < SLICES; ++s) {
        std::copy(a[s], a[s] + 4, rows[threadIdx.x % 128]);
        emulator::meet(emulator::warpgroups[warpgroup]);
        for (int i = 0; i < SUMS; ++i) {
            const unsigned row = lane / 4, lower = i / 2 % 2, column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
            for (unsigned word = 0; word < 8; ++word) {
                const u32 left = rows[32 * warp + 4 * row + word % 4][lower + 2 * (word / 4)];
                const char* right = columns + (2 * s + word / 4) * lead + column / 8 * CORE + 16 * (column % 8);
                sums[i] += __popc(left & reinterpret_cast<const u32*>(right)[word % 4]);
            }
        }
        emulator::meet(emulator::warpgroups[warpgroup]);
    }
}

template <int LATER>
void await(u32 (&)[SUMS]) {
    auto& products = emulator::products[threadIdx.x];
    while (products.size() > LATER) {
        multiply_now(products.front());
        products.erase(products.begin());
    }
}
#endif
