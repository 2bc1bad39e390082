"""Vector instructions for the numba kernels: Hamming distances of a tile, and counting and finding bits.

Numba's own vectoriser stops at 256-bit registers and cannot turn a comparison into a bit mask, so the innermost tile
is written as LLVM instructions. They are generic (`ctpop` on vectors of 32 words of 16 bits): LLVM lowers them to
VPOPCNTW on CPUs that have it, and to shuffles or NEON counts on others. Short words make distances short, so that one
comparison tests 32 of them.

Counting the bits of three words takes two popcounts: with a, b, c the differing bits of a word each, the number of
ones is popcount(a ^ b ^ c) + 2 popcount(majority(a, b, c)). The XORs within a code are computed beforehand, once per
code: with majority(a, b, c) = a ^ ((a ^ b) & (a ^ c)), codes that store x0 ^ x1, x0 ^ x2, x0 and x0 ^ x1 ^ x2 for
every three words need four three-input instructions, two popcounts and two additions: eight instead of nine.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from lookalike.utils.jit import intrinsic, kernel

LANES = 32  # reference rows per vector register: 32 words of 16 bits
BLOCK = 2 * LANES  # reference rows compared at a time: their hits are one 64-bit word
GROUP = 16  # query rows that share a tile
TILE = 256  # reference rows per tile: its distances to a group, 8 KiB, stay in the first-level cache

BLOCKS = TILE // BLOCK

ROWS = 4  # query rows compared at a time: with two vectors of references, their sums fit in registers

_i1, _i16, _i32, _i64 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_i16, LANES)
_pairs = ir.VectorType(_i32, LANES // 2)  # the same register, as a word that is loaded twice
_zeros = ir.Constant(_vector, [0] * LANES)


def _int64(value: int) -> Any:
    return ir.Constant(_i64, value)


def _splat(builder: Any, value: Any) -> Any:
    """Repeat an i32 that holds a word twice: instructions repeat 32 bits as they load them, but not 16."""
    undefined = ir.Constant(_pairs, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_i32, 0))
    repeated = builder.shuffle_vector(first, undefined, ir.Constant(_pairs, [0] * (LANES // 2)))
    return builder.bitcast(repeated, _vector)


def at(builder: Any, address: Any, element: ir.Type, index: Any) -> Any:
    """Return a pointer to one element of the array at an address."""
    return builder.gep(builder.inttoptr(address, element.as_pointer()), [index])


def _vector_at(builder: Any, address: Any, index: Any) -> Any:
    return builder.bitcast(at(builder, address, _i16, index), _vector.as_pointer())


class HitPlace(NamedTuple):
    """A row of a tile and a block of its columns, and where their limits are."""

    row: Any
    block: Any
    row_limits: Any  # uint32 [GROUP], `twice` each limit
    column_limits: Any  # int16 [TILE]


def store_hits(builder: Any, totals: list[Any], place: HitPlace, distances: Any, hits: Any, found: Any) -> None:
    """Store the distances of a row to a block, two vectors of int16, and a word of which are within the limits."""
    row, block, row_limits, column_limits = place
    limit_of_row = _splat(builder, builder.load(at(builder, row_limits, _i32, row), align=4))
    masks = []
    for half, total in enumerate(totals):
        column = builder.add(builder.mul(block, _int64(BLOCK)), _int64(half * LANES))
        start = builder.add(builder.mul(row, _int64(TILE)), column)
        builder.store(total, _vector_at(builder, distances, start), align=2)
        of_column = builder.load(_vector_at(builder, column_limits, column), align=2)
        limit = builder.select(builder.icmp_signed(">", limit_of_row, of_column), limit_of_row, of_column)
        masks.append(builder.icmp_signed("<=", total, limit))
    joined = ir.Constant(ir.VectorType(_i32, BLOCK), list(range(BLOCK)))
    word = builder.bitcast(builder.shuffle_vector(*masks, joined), _i64)
    index = builder.add(builder.mul(row, _int64(BLOCKS)), block)
    builder.store(word, at(builder, hits, _i64, index), align=8)
    bit = builder.shl(builder.zext(builder.icmp_unsigned("!=", word, _int64(0)), _i64), index)
    builder.store(builder.or_(builder.load(found), bit), found)


def twice(words: Any) -> Any:
    """Return uint16 values as uint32 that hold them twice."""
    return words.astype(np.uint32) * np.uint32(0x10001)


def num_slots(num_words: int) -> int:
    """Return how many words `interleave` makes of the words of a code: four of every three."""
    return num_words + num_words // 3


@kernel
def interleave(words: Any, slots: Any) -> None:
    """Lay out codes so that one slot of several rows is one vector, and combine words.

    words  uint16 [n, words]
    slots  uint16 [blocks, slots, rows], of zeros: x0 ^ x1, x0 ^ x2, x0, x0 ^ x1 ^ x2 per three words; then the rest
    """
    num_words, lanes = words.shape[1], slots.shape[2]
    threes = num_words // 3
    for row in range(len(words)):
        block, lane = row // lanes, row % lanes
        for three in range(threes):
            x0, x1, x2 = words[row, 3 * three], words[row, 3 * three + 1], words[row, 3 * three + 2]
            slots[block, 4 * three, lane] = x0 ^ x1
            slots[block, 4 * three + 1, lane] = x0 ^ x2
            slots[block, 4 * three + 2, lane] = x0
            slots[block, 4 * three + 3, lane] = x0 ^ x1 ^ x2
        for word in range(3 * threes, num_words):
            slots[block, threes + word, lane] = words[row, word]


@intrinsic
def distance_tile(
    typingctx: Any,
    queries: Any,
    reference: Any,
    slots: Any,
    row_limits: Any,
    column_limits: Any,
    distances: Any,
    hits: Any,
) -> Any:
    """Compute distances of `GROUP` queries (rows) to `TILE` reference codes (columns), and which are within limits.

    All arguments are addresses, except `slots`, the number of `interleave`d words per code. Returns which of the
    GROUP x BLOCKS words of `hits` are not zero, as the bits of an int64.

    queries        uint32 [GROUP / 4, slots, 4]           `twice` each word
    reference      uint16 [TILE / LANES, slots, LANES]    64-byte aligned
    row_limits     uint32 [GROUP]                         `twice` each limit
    column_limits  int16  [TILE]
    distances      int16  [GROUP, TILE]                   out
    hits           bit    [GROUP, TILE]                   out: distance <= limit of the row or of the column
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        queries, reference, slots, row_limits, column_limits, distances, hits = args
        popcount_type = ir.FunctionType(_vector, [_vector])
        popcount = cgutils.get_or_insert_function(builder.module, popcount_type, f"llvm.ctpop.v{LANES}i16")

        def count(bits: Any, total: Any) -> None:
            builder.store(builder.add(builder.load(total), builder.call(popcount, [bits])), total)

        def loop(turns: Any) -> Any:
            return cgutils.for_range(builder, turns, intp=_i64)

        def times(value: Any, factor: int) -> Any:
            return builder.mul(value, _int64(factor))

        cells = [(row, half) for row in range(ROWS) for half in range(2)]
        ones = {cell: cgutils.alloca_once(builder, _vector) for cell in cells}
        twos = {cell: cgutils.alloca_once(builder, _vector) for cell in cells}
        found = cgutils.alloca_once_value(builder, _int64(0))
        threes = builder.udiv(slots, _int64(4))
        rest = builder.urem(slots, _int64(4))
        with loop(_int64(BLOCKS)) as blocks, loop(_int64(GROUP // ROWS)) as fours:
            block_start = builder.mul(times(blocks.index, BLOCK), slots)
            fours_start = builder.mul(times(fours.index, ROWS), slots)
            first_row = times(fours.index, ROWS)

            def codes(slot: Any) -> list[Any]:
                start = builder.add(block_start, times(slot, LANES))
                offsets = [start, builder.add(start, times(slots, LANES))]
                return [builder.load(_vector_at(builder, reference, offset), align=64) for offset in offsets]

            def query(slot: Any, row: int) -> Any:
                index = builder.add(builder.add(fours_start, times(slot, ROWS)), _int64(row))
                return _splat(builder, builder.load(at(builder, queries, _i32, index), align=4))

            for total in (*ones.values(), *twos.values()):
                builder.store(_zeros, total)
            with loop(threes) as three:
                slot = [builder.add(times(three.index, 4), _int64(i)) for i in range(4)]
                code01, code02, code0, code012 = (codes(each) for each in slot)
                for row, half in cells:
                    query01, query02, query0, query012 = (query(each, row) for each in slot)
                    both = builder.and_(builder.xor(code01[half], query01), builder.xor(code02[half], query02))
                    count(builder.xor(builder.xor(code0[half], query0), both), twos[row, half])
                    count(builder.xor(code012[half], query012), ones[row, half])
            with loop(rest) as single:
                slot_of_rest = builder.add(times(threes, 4), single.index)
                codes_of_rest = codes(slot_of_rest)
                for row, half in cells:
                    count(builder.xor(codes_of_rest[half], query(slot_of_rest, row)), ones[row, half])
            for row in range(ROWS):
                totals = []
                for half in range(2):
                    two = builder.load(twos[row, half])
                    totals.append(builder.add(builder.load(ones[row, half]), builder.add(two, two)))
                place = HitPlace(builder.add(first_row, _int64(row)), blocks.index, row_limits, column_limits)
                store_hits(builder, totals, place, distances, hits, found)
        return builder.load(found)

    return types.uint64(*[types.intp] * 7), codegen


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Return the position of the lowest set bit of a uint64; 64 if there is none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(_i1, 0))

    return types.int64(types.uint64), codegen


@intrinsic
def count_ones(typingctx: Any, value: Any) -> Any:
    """Return the number of set bits of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen
