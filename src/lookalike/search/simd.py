"""Vector instructions for the numba kernels: Hamming distances of a tile, and counting and finding bits.

Numba's own vectoriser stops at 256-bit registers and cannot turn a comparison into a bit mask, so the innermost tile
is written as LLVM instructions. They are generic (`ctpop` on vectors of 16 words): LLVM lowers them to VPOPCNTDQ
on CPUs that have it, and to shuffles or NEON counts on others.

Counting the bits of three words takes two popcounts: with a, b, c the differing bits of a word each, the number of
ones is popcount(a ^ b ^ c) + 2 popcount(majority(a, b, c)). The XORs within a code are computed beforehand, once per
code: with majority(a, b, c) = a ^ ((a ^ b) & (a ^ c)), codes that store x0 ^ x1, x0 ^ x2, x0 and x0 ^ x1 ^ x2 for
every three words need four three-input instructions, two popcounts and two additions: eight instead of nine.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from lookalike.utils.jit import intrinsic

LANES = 16  # reference rows per vector register: 16 x 32 bits
GROUP = 8  # query rows that share one loaded reference vector
TILE = 512  # reference rows per tile: its distances to a group, 16 KiB, stay in the first-level cache

_BLOCKS = TILE // LANES

_i1, _i16, _i32, _i64 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_i32, LANES)
_zeros = ir.Constant(_vector, [0] * LANES)
_undefined = ir.Constant(_vector, ir.Undefined)


def _int64(value: int) -> Any:
    return ir.Constant(_i64, value)


def _splat(builder: Any, value: Any) -> Any:
    return builder.shuffle_vector(builder.insert_element(_undefined, value, ir.Constant(_i32, 0)), _undefined, _zeros)


def combined_words(words: Any) -> Any:
    """Turn uint32 [n, words] into [n, slots]: x0 ^ x1, x0 ^ x2, x0, x0 ^ x1 ^ x2 per three words; keep the rest."""
    threes = words.shape[1] // 3
    x0, x1, x2 = (words[:, i : 3 * threes : 3] for i in range(3))
    combined = np.stack([x0 ^ x1, x0 ^ x2, x0, x0 ^ x1 ^ x2], axis=2).reshape(len(words), 4 * threes)
    return np.concatenate([combined, words[:, 3 * threes :]], axis=1)


@intrinsic
def distance_tile(
    typingctx: Any,
    queries: Any,
    reference: Any,
    slots: Any,
    row_limits: Any,
    column_limits: Any,
    distances: Any,
    row_hits: Any,
    column_hits: Any,
) -> Any:
    """Compute distances of `GROUP` queries (rows) to `TILE` reference codes (columns), and which are within limits.

    All arguments are addresses, except `slots`, the number of `combined_words` per code.

    queries        uint32 [slots, GROUP]
    reference      uint32 [TILE / LANES, slots, LANES]  64-byte aligned
    row_limits     int32  [GROUP]
    column_limits  int32  [TILE]
    distances      int32  [GROUP, TILE]                 out
    row_hits       bit    [GROUP, TILE]                 out: distance <= limit of the row
    column_hits    bit    [GROUP, TILE]                 out: distance <= limit of the column
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        queries, reference, slots, row_limits, column_limits, distances, row_hits, column_hits = args
        popcount_type = ir.FunctionType(_vector, [_vector])
        popcount = cgutils.get_or_insert_function(builder.module, popcount_type, f"llvm.ctpop.v{LANES}i32")

        def at(address: Any, element: ir.Type, index: Any) -> Any:
            return builder.gep(builder.inttoptr(address, element.as_pointer()), [index])

        def vector_at(address: Any, index: Any) -> Any:
            return builder.bitcast(at(address, _i32, index), _vector.as_pointer())

        def count(bits: Any, total: Any) -> None:
            builder.store(builder.add(builder.load(total), builder.call(popcount, [bits])), total)

        def loop(turns: Any) -> Any:
            return cgutils.for_range(builder, turns, intp=_i64)

        limits = [_splat(builder, builder.load(at(row_limits, _i32, _int64(r)), align=4)) for r in range(GROUP)]
        ones = [cgutils.alloca_once(builder, _vector) for _ in range(GROUP)]
        twos = [cgutils.alloca_once(builder, _vector) for _ in range(GROUP)]
        threes = builder.udiv(slots, _int64(4))
        rest = builder.urem(slots, _int64(4))
        with loop(_int64(_BLOCKS)) as blocks:
            block_start = builder.mul(blocks.index, builder.mul(slots, _int64(LANES)))

            def code(slot: Any) -> Any:
                offset = builder.add(block_start, builder.mul(slot, _int64(LANES)))
                return builder.load(vector_at(reference, offset), align=64)

            def query(slot: Any, row: int) -> Any:
                index = builder.add(builder.mul(slot, _int64(GROUP)), _int64(row))
                return _splat(builder, builder.load(at(queries, _i32, index), align=4))

            for total in ones + twos:
                builder.store(_zeros, total)
            with loop(threes) as three:
                slot = [builder.add(builder.mul(three.index, _int64(4)), _int64(i)) for i in range(4)]
                code01, code02, code0, code012 = (code(each) for each in slot)
                for row in range(GROUP):
                    differ01 = builder.xor(code01, query(slot[0], row))
                    differ02 = builder.xor(code02, query(slot[1], row))
                    differ0 = builder.xor(code0, query(slot[2], row))
                    count(builder.xor(differ0, builder.and_(differ01, differ02)), twos[row])
                    count(builder.xor(code012, query(slot[3], row)), ones[row])
            with loop(rest) as single:
                slot_of_rest = builder.add(builder.mul(threes, _int64(4)), single.index)
                codes = code(slot_of_rest)
                for row in range(GROUP):
                    count(builder.xor(codes, query(slot_of_rest, row)), ones[row])
            column = builder.mul(blocks.index, _int64(LANES))
            column_limit = builder.load(vector_at(column_limits, column), align=4)
            for row in range(GROUP):
                two = builder.load(twos[row])
                total = builder.add(builder.load(ones[row]), builder.add(two, two))
                builder.store(total, vector_at(distances, builder.add(column, _int64(row * TILE))), align=4)
                slot_of_mask = builder.add(blocks.index, _int64(row * _BLOCKS))
                for hits, limit in ((row_hits, limits[row]), (column_hits, column_limit)):
                    mask = builder.bitcast(builder.icmp_signed("<=", total, limit), _i16)
                    builder.store(mask, at(hits, _i16, slot_of_mask), align=2)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8), codegen


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Return the position of the lowest set bit of a uint64; 64 if there is none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(_i1, 0))

    return types.int64(types.uint64), codegen


@intrinsic
def count_ones(typingctx: Any, value: Any) -> Any:
    """Count the set bits of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen
