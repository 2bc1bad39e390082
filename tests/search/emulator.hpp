// CUDA on the CPU, as far as the kernels of the search need it: a thread is a coroutine that hands over to the next
// when it waits for others. Blocks run one after the other. Slow and literal; the product follows the PTX manual.

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) int2 { int x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

dim3 threadIdx, blockIdx, blockDim, gridDim;
long long* dynamic_memory;
extern "C" {
long long emulated_examined;  // hits looked up since the host set it to zero
long long emulated_backwards;  // whether the last thread goes first: who may go first should not matter
}

namespace emulator {
struct Meeting {  // where `size` threads wait for each other
    unsigned size = 0, arrived = 0, generation = 0;
};
struct Thread {
    ucontext_t beginning;
    jmp_buf place;  // where it goes on: unlike swapcontext, setjmp and longjmp ask nothing of the system
    bool started = false, ended = false;
};
std::vector<Thread> threads;
std::vector<std::vector<char>> stacks;
jmp_buf scheduler;
Meeting block, warps[32], warpgroups[8];
uint32_t slots[2][32][32][8];  // two tables per warp, on which its lanes put words
uint32_t rows[8][128][4];  // a table per warpgroup
unsigned current;
void (*entry)(const long long*);
const long long* entry_arguments;

__attribute__((noinline)) void hand_over() {
    if (!_setjmp(threads[current].place)) _longjmp(scheduler, 1);
}

__attribute__((noinline)) void go_on() {
    if (_setjmp(scheduler)) return;
    Thread& thread = threads[current];
    if (thread.started) _longjmp(thread.place, 1);
    thread.started = true;
    setcontext(&thread.beginning);
}

inline void meet(Meeting& meeting) {
    const unsigned generation = meeting.generation;
    if (++meeting.arrived == meeting.size) {
        meeting.arrived = 0;
        ++meeting.generation;
        return;
    }
    while (meeting.generation == generation) hand_over();
}

// Puts words on one of the warp's tables and reads it once all have. Tables alternate: by the time a lane writes to this
// one again, all lanes have met at the other and so have read this one.
template <class Read>
auto exchange(const uint32_t* words, int count, Read read) {
    const unsigned warp = threadIdx.x / 32;
    auto& table = slots[warps[warp].generation % 2][warp];
    std::copy(words, words + count, table[threadIdx.x % 32]);
    meet(warps[warp]);
    return read(table);
}

inline void start() {
    entry(entry_arguments);
    threads[current].ended = true;
    --block.size;
    if (block.size && block.arrived == block.size) block.arrived = 0, ++block.generation;
    hand_over();
}

inline void run_block(unsigned size) {
    threads.assign(size, {});
    stacks.resize(std::max<size_t>(stacks.size(), size), std::vector<char>(1 << 16));
    block = {size};
    for (auto& warp : warps) warp = {32};
    for (auto& warpgroup : warpgroups) warpgroup = {128};
    for (unsigned i = 0; i < size; ++i) {
        ucontext_t& beginning = threads[i].beginning;
        getcontext(&beginning);
        beginning.uc_stack.ss_sp = stacks[i].data();
        beginning.uc_stack.ss_size = stacks[i].size();
        makecontext(&beginning, start, 0);
    }
    for (unsigned left = size; left;) {
        left = 0;
        for (unsigned turn = 0; turn < size; ++turn) {
            current = emulated_backwards ? size - 1 - turn : turn;
            if (threads[current].ended) continue;
            threadIdx.x = current;
            go_on();
            left += !threads[current].ended;
        }
    }
}

template <class Type>
Type as(long long word) {
    Type value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

template <class... Types, size_t... Is>
void call(void (*kernel)(Types...), const long long* words, std::index_sequence<Is...>) {
    kernel(as<Types>(words[Is])...);
}

template <auto kernel>
struct Call;
template <class... Types, void (*kernel)(Types...)>
struct Call<kernel> {
    static void with(const long long* words) { call(kernel, words, std::index_sequence_for<Types...>{}); }
};

inline void launch(void (*kernel)(const long long*), unsigned x, unsigned y, unsigned size, long long bytes,
                   const long long* words) {
    std::vector<long long> memory(bytes / 8 + 1, 0x5a5a5a5a5a5a5a5a);  // shared memory begins as rubbish
    dynamic_memory = memory.data();
    gridDim = {x, y}, blockDim = {size}, entry = kernel, entry_arguments = words;
    for (blockIdx.y = 0; blockIdx.y < y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < x; ++blockIdx.x) run_block(size);
}
}  // namespace emulator

#define EMULATED(name)                                                                                       \
    extern "C" void emulated_##name(unsigned x, unsigned y, unsigned size, long long bytes, const long long* words) { \
        emulator::launch(emulator::Call<&name>::with, x, y, size, bytes, words);                             \
    }

using std::max;
using std::min;
template <class Type>
Type __ldg(const Type* address) { return *address; }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, int n) { return high << n | low >> (32 - n); }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t found = 0;
    for (int i = 0; i < 4; ++i) found |= (uint32_t)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline int __dp4a(int x, int y, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (int8_t)(x >> i) * (int8_t)(y >> i);
    return sum;
}
inline float __fadd_rd(float x, float y) {
    const double sum = (double)x + y;  // exact for the numbers that kernels add
    const float nearest = (float)sum;
    return nearest > sum ? std::nextafterf(nearest, -INFINITY) : nearest;
}
template <class Type>
Type atomicAdd(Type* address, Type value) { return std::exchange(*address, *address + value); }

inline void __syncthreads() { emulator::meet(emulator::block); }
inline void __syncwarp() { emulator::meet(emulator::warps[threadIdx.x / 32]); }
inline int __syncthreads_or(int value) {
    static int any;
    __syncthreads();
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    any |= value;
    __syncthreads();
    return any;
}
inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
    return emulator::exchange(&value, 1, [](auto& table) {
        uint32_t sum = 0;
        for (auto& lane : table) sum += lane[0];
        return sum;
    });
}
inline uint32_t __reduce_or_sync(uint32_t, uint32_t value) {
    return emulator::exchange(&value, 1, [](auto& table) {
        uint32_t bits = 0;
        for (auto& lane : table) bits |= lane[0];
        return bits;
    });
}
inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
    return emulator::exchange(&value, 1, [](auto& table) {
        uint32_t least = table[0][0];
        for (auto& lane : table) least = std::min(least, lane[0]);
        return least;
    });
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value) { return ~__reduce_min_sync(mask, ~value); }
inline uint32_t __ballot_sync(uint32_t, bool value) {
    const uint32_t word = value;
    return emulator::exchange(&word, 1, [](auto& table) {
        uint32_t bits = 0;
        for (int i = 0; i < 32; ++i) bits |= table[i][0] << i;
        return bits;
    });
}
inline bool __any_sync(uint32_t mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline uint32_t __shfl_sync(uint32_t, uint32_t value, int from) {
    return emulator::exchange(&value, 1, [from](auto& table) { return table[from][0]; });
}
template <class Type>
Type __shfl_xor_sync(uint32_t, Type value, int mask) {
    uint32_t words[2] = {};
    std::memcpy(words, &value, sizeof value);
    return emulator::exchange(words, 2, [mask](auto& table) {
        Type other;
        std::memcpy(&other, table[(threadIdx.x % 32) ^ mask], sizeof other);
        return other;
    });
}

// mma.m16n8k256 with .b1 operands and .and.popc, element by element as the PTX manual places them; bit i of a fragment
// lies in register i / 32. A: row = group (+ 8 in registers 1 and 3), column = 32 * member + i % 32 (+ 128 in registers
// 2 and 3). B: row = 32 * member + i % 32 (+ 128 in register 1), column = group. C: row = group (+ 8 in registers 2 and
// 3), column = 2 * member + register % 2.
inline void multiply_add_emulated(uint32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const unsigned lane = threadIdx.x % 32;
    const auto added = emulator::exchange(words, 6, [lane](auto& table) {
        std::pair<int[4], int> result = {};
        for (int i = 0; i < 4; ++i) {
            const unsigned row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + i % 2;
            for (unsigned k = 0; k < 256; k += 32) {
                const uint32_t left = table[4 * (row % 8) + k % 128 / 32][(row >= 8) + 2 * (k >= 128)];
                const uint32_t right = table[4 * column + k % 128 / 32][4 + (k >= 128)];
                result.first[i] += __popc(left & right);
            }
        }
        return result;
    });
    for (int i = 0; i < 4; ++i) sum[i] += added.first[i];
}
