"""Vector instructions for the numba kernels: distances of codes of several bits, by dot products of bytes.

Where the CPU has AVX-512 VNNI, one instruction multiplies 64 bytes and adds four products at a time to sums of 32 bits.
It takes unsigned bytes from one side, so the values of the reference are stored plus 128, and each sum starts from
-128 times the sum of the query's values. Other CPUs take the same layout through multiplications that LLVM chooses.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config

from lookalike.search.simd import BLOCK, BLOCKS, GROUP, ROWS, HitPlace, at, store_hits
from lookalike.utils.jit import intrinsic

LANES = 16  # reference rows per vector register: 16 words of 4 bytes
SIGN = 128  # what makes a value of the reference unsigned
VECTORS = BLOCK // LANES

_i8, _i16, _i32, _i64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_i32, LANES)
_short = ir.VectorType(_i16, LANES)


def _int64(value: int) -> Any:
    return ir.Constant(_i64, value)


def _int32(value: int) -> Any:
    return ir.Constant(_i32, value)


def _all(value: int) -> Any:
    return ir.Constant(_vector, [value] * LANES)


def _splat(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_vector, ir.Undefined), value, _int32(0))
    return builder.shuffle_vector(first, first, _all(0))


def has_byte_products() -> bool:
    """Return whether numba compiles for this CPU and the CPU has AVX-512 VNNI."""
    return config.CPU_NAME is None and bool(binding.get_host_cpu_features().get("avx512vnni"))


def _add_products(builder: Any, total: Any, unsigned: Any, word: Any) -> Any:
    """Add the dot product of 4 unsigned bytes per lane with the 4 signed bytes of a word."""
    if has_byte_products():
        kind = ir.FunctionType(_vector, [_vector, _vector, _vector])
        product = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return builder.call(product, [total, unsigned, _splat(builder, word)])
    for byte in range(4):
        value = builder.ashr(builder.shl(word, _int32(24 - 8 * byte)), _int32(24))
        lanes = builder.and_(builder.lshr(unsigned, _all(8 * byte)), _all(255))
        total = builder.add(total, builder.mul(lanes, _splat(builder, value)))
    return total


@intrinsic
def scalar_distance_tile(
    typingctx: Any,
    queries: Any,
    reference: Any,
    words: Any,
    query_terms: Any,
    reference_terms: Any,
    shifts: Any,
    row_limits: Any,
    column_limits: Any,
    distances: Any,
    hits: Any,
) -> Any:
    """Compute distances like `distance_tile`, but of codes of several bits: what `hashing.scheme.distances` computes.

    All arguments are addresses, except `words`, the number of words of four values per code, and `shifts`, which holds
    two: of the product of the factors, and 8 bits higher of the scaled dot product.

    queries          uint32 [GROUP / 4, words, 4]         four int8 values each
    reference        uint32 [TILE / 16, words, 16]        four values plus 128 each; 64-byte aligned
    query_terms      int32  [3, GROUP]                    -128 times the sum of the values; factor; 16384 - offset
    reference_terms  int32  [2, TILE]                     factor; offset
    row_limits, column_limits, distances, hits            as in `distance_tile`
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        queries, reference, words, query_terms, reference_terms, shifts, row_limits, column_limits, distances, hits = (
            args
        )

        def loop(turns: Any) -> Any:
            return cgutils.for_range(builder, turns, intp=_i64)

        def times(value: Any, factor: int) -> Any:
            return builder.mul(value, _int64(factor))

        def number_at(address: Any, index: Any) -> Any:
            return builder.load(at(builder, address, _i32, index), align=4)

        def lanes_at(address: Any, index: Any, align: int) -> Any:
            pointer = builder.bitcast(at(builder, address, _i32, index), _vector.as_pointer())
            return builder.load(pointer, align=align)

        short_shifts = builder.trunc(shifts, _i32)
        factor_shift = _splat(builder, builder.and_(short_shifts, _int32(255)))
        product_shift = _splat(builder, builder.lshr(short_shifts, _int32(8)))
        cells = [(row, vector) for row in range(ROWS) for vector in range(VECTORS)]
        sums = {cell: cgutils.alloca_once(builder, _vector) for cell in cells}
        found = cgutils.alloca_once_value(builder, _int64(0))
        with loop(_int64(BLOCKS)) as blocks, loop(_int64(GROUP // ROWS)) as fours:
            first_row, first_column = times(fours.index, ROWS), times(blocks.index, BLOCK)
            rows = [builder.add(first_row, _int64(row)) for row in range(ROWS)]
            for row, vector in cells:
                builder.store(_splat(builder, number_at(query_terms, rows[row])), sums[row, vector])
            with loop(words) as word:
                values = []
                for vector in range(VECTORS):
                    row_of_vectors = builder.add(times(blocks.index, VECTORS), _int64(vector))
                    place = builder.add(builder.mul(row_of_vectors, words), word.index)
                    values.append(lanes_at(reference, times(place, LANES), align=64))
                for row in range(ROWS):
                    place = builder.add(builder.mul(fours.index, words), word.index)
                    four = number_at(queries, builder.add(times(place, ROWS), _int64(row)))
                    for vector in range(VECTORS):
                        total = _add_products(builder, builder.load(sums[row, vector]), values[vector], four)
                        builder.store(total, sums[row, vector])
            for row in range(ROWS):
                factor = _splat(builder, number_at(query_terms, builder.add(rows[row], _int64(GROUP))))
                base = _splat(builder, number_at(query_terms, builder.add(rows[row], _int64(2 * GROUP))))
                shorts = []
                for vector in range(VECTORS):
                    column = builder.add(first_column, _int64(vector * LANES))
                    both = builder.mul(factor, lanes_at(reference_terms, column, align=4))
                    both = builder.ashr(both, factor_shift)
                    scaled = builder.ashr(builder.mul(builder.load(sums[row, vector]), both), product_shift)
                    offset = lanes_at(reference_terms, builder.add(column, _int64(BLOCK * BLOCKS)), align=4)
                    distance = builder.sub(builder.sub(base, scaled), offset)
                    distance = builder.select(builder.icmp_signed(">", distance, _all(0)), distance, _all(0))
                    highest = _all(np.iinfo(np.int16).max)
                    distance = builder.select(builder.icmp_signed("<", distance, highest), distance, highest)
                    shorts.append(builder.trunc(distance, _short))
                joined = ir.Constant(ir.VectorType(_i32, 2 * LANES), list(range(2 * LANES)))
                totals = [builder.shuffle_vector(*shorts[i : i + 2], joined) for i in range(0, VECTORS, 2)]
                place_of_hits = HitPlace(rows[row], blocks.index, row_limits, column_limits)
                store_hits(builder, totals, place_of_hits, distances, hits, found)
        return builder.load(found)

    return types.uint64(*[types.intp] * 10), codegen
