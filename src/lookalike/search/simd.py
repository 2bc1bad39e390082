"""Vector instructions for the numba kernels: Hamming distances of a tile, and counting and finding bits.

Numba's own vectoriser stops at 256-bit registers and cannot turn a comparison into a bit mask, so the innermost tile
is written as LLVM instructions. They are generic (`ctpop` on vectors of 16 words): LLVM lowers them to VPOPCNTDQ
where the CPU has it and to shuffles or NEON counts where it has not.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from lookalike.jit import intrinsic

LANES = 16  # database rows per vector register: 16 x 32 bits
GROUP = 8  # query rows that share one loaded database vector
TILE = 512  # database rows per tile: its distances to a group, 16 KiB, stay in the first-level cache
STEP = 4  # words per turn of the inner loop; codes are padded to 4 x 32 bits

_BLOCKS = TILE // LANES

_i1, _i16, _i32, _i64 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_i32, LANES)
_zeros = ir.Constant(_vector, [0] * LANES)
_undefined = ir.Constant(_vector, ir.Undefined)


def _int64(value: int) -> Any:
    return ir.Constant(_i64, value)


def _splat(builder: Any, value: Any) -> Any:
    return builder.shuffle_vector(builder.insert_element(_undefined, value, ir.Constant(_i32, 0)), _undefined, _zeros)


@intrinsic
def distance_tile(
    typingctx: Any,
    queries: Any,
    database: Any,
    words: Any,
    row_limits: Any,
    column_limits: Any,
    distances: Any,
    row_hits: Any,
    column_hits: Any,
) -> Any:
    """Distances of `GROUP` queries (rows) to `TILE` database codes (columns), and which of them are within a limit.

    All arguments are addresses, except `words`, the number of 32-bit words per code, a multiple of `STEP`.

    queries        uint32 [words, GROUP]
    database       uint32 [TILE / LANES, words, LANES]  64-byte aligned
    row_limits     int32  [GROUP]
    column_limits  int32  [TILE]
    distances      int32  [GROUP, TILE]                 out
    row_hits       bit    [GROUP, TILE]                 out: distance <= limit of the row
    column_hits    bit    [GROUP, TILE]                 out: distance <= limit of the column
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        queries, database, words, row_limits, column_limits, distances, row_hits, column_hits = args
        popcount = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_vector, [_vector]), f"llvm.ctpop.v{LANES}i32"
        )

        def at(address: Any, element: ir.Type, index: Any) -> Any:
            return builder.gep(builder.inttoptr(address, element.as_pointer()), [index])

        def vector_at(address: Any, index: Any) -> Any:
            return builder.bitcast(at(address, _i32, index), _vector.as_pointer())

        limits = [_splat(builder, builder.load(at(row_limits, _i32, _int64(r)), align=4)) for r in range(GROUP)]
        sums = [cgutils.alloca_once(builder, _vector) for _ in range(GROUP)]
        block_words = builder.mul(words, _int64(LANES))
        steps = builder.udiv(words, _int64(STEP))
        with cgutils.for_range(builder, _int64(_BLOCKS), intp=_i64) as blocks:
            first_word = builder.mul(blocks.index, block_words)
            for row in range(GROUP):
                builder.store(_zeros, sums[row])
            with cgutils.for_range(builder, steps, intp=_i64) as inner:
                for unrolled in range(STEP):
                    word = builder.add(builder.mul(inner.index, _int64(STEP)), _int64(unrolled))
                    offset = builder.add(first_word, builder.mul(word, _int64(LANES)))
                    codes = builder.load(vector_at(database, offset), align=64)
                    for row in range(GROUP):
                        index = builder.add(builder.mul(word, _int64(GROUP)), _int64(row))
                        query = _splat(builder, builder.load(at(queries, _i32, index), align=4))
                        differing = builder.call(popcount, [builder.xor(codes, query)])
                        builder.store(builder.add(builder.load(sums[row]), differing), sums[row])
            column = builder.mul(blocks.index, _int64(LANES))
            column_limit = builder.load(vector_at(column_limits, column), align=4)
            for row in range(GROUP):
                total = builder.load(sums[row])
                builder.store(total, vector_at(distances, builder.add(column, _int64(row * TILE))), align=4)
                slot = builder.add(blocks.index, _int64(row * _BLOCKS))
                for hits, limit in ((row_hits, limits[row]), (column_hits, column_limit)):
                    mask = builder.bitcast(builder.icmp_signed("<=", total, limit), _i16)
                    builder.store(mask, at(hits, _i16, slot), align=2)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8), codegen


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """The position of the lowest set bit of a uint64; 64 if there is none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(_i1, 0))

    return types.int64(types.uint64), codegen


@intrinsic
def count_ones(typingctx: Any, value: Any) -> Any:
    """The number of set bits of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen
