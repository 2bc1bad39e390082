"""The numba kernel that reads rows and multiplies them at once, without the interpreter and without their copies.

Products are added up in 32 lanes of 64 bits, always in the same order: results do not depend on the number of threads
or on the machine, and neither the sum nor the norm of finite rows overflows. The loop is written as LLVM instructions,
because without them numba keeps the lanes in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from lookalike.utils.jit import intrinsic, kernel

if TYPE_CHECKING:
    from lookalike.utils.arrays import Array

BLOCK = 32  # values that are multiplied at a time; buffers are padded with zeros to a multiple of it
NOWHERE = -2  # in place of a file: there is no such row, and no score
MEMORY = -1  # in place of a file: the place is an address
EPSILON = 1e-12  # the smallest norm, as in torch.nn.functional.normalize

_WIDTH = 8
_i32, _i64, _float, _double = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
_floats, _doubles = ir.VectorType(_float, _WIDTH), ir.VectorType(_double, _WIDTH)

_pread = types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))
_memcpy = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))


@intrinsic
def _multiply(typingctx: Any, query: Any, row: Any, blocks: Any, sums: Any) -> Any:  # noqa: ARG001 - numba prescribes it
    """Multiply two rows, and the second one with itself.

    All arguments are addresses, except `blocks`.

    query   float64 [blocks * BLOCK]
    row     float32 [blocks * BLOCK]
    sums    float64 [2]               out: query @ row, row @ row
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba prescribes it
        query, row, blocks, sums = args
        zeros = ir.Constant(_doubles, [0.0] * _WIDTH)
        products, squares = (
            [cgutils.alloca_once_value(builder, zeros) for _ in range(BLOCK // _WIDTH)] for _ in range(2)
        )

        def vector(address: Any, element: ir.Type, kind: ir.Type, index: Any) -> Any:
            place = builder.gep(builder.inttoptr(address, element.as_pointer()), [index])
            return builder.load(builder.bitcast(place, kind.as_pointer()), align=4)

        def add(total: Any, a: Any, b: Any) -> None:
            builder.store(builder.fadd(builder.load(total), builder.fmul(a, b)), total)

        def total(lanes: list[Any]) -> Any:
            """Add up all lanes, halving their number each time."""
            a, b, c, d = (builder.load(each) for each in lanes)
            vector = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
            half = _WIDTH // 2
            while half:
                undefined = ir.Constant(ir.VectorType(_double, 2 * half), ir.Undefined)
                low, high = (
                    builder.shuffle_vector(
                        vector, undefined, ir.Constant(ir.VectorType(_i32, half), list(range(first, first + half)))
                    )
                    for first in (0, half)
                )
                vector, half = builder.fadd(low, high), half // 2
            return builder.extract_element(vector, ir.Constant(_i32, 0))

        with cgutils.for_range(builder, blocks, intp=_i64) as block:
            for lane in range(BLOCK // _WIDTH):
                start = builder.mul(block.index, ir.Constant(_i64, BLOCK))
                start = builder.add(start, ir.Constant(_i64, lane * _WIDTH))
                a = vector(query, _double, _doubles, start)
                b = builder.fpext(vector(row, _float, _floats, start), _doubles)
                add(products[lane], a, b)
                add(squares[lane], b, b)
        out = builder.inttoptr(sums, _double.as_pointer())
        builder.store(total(products), out)
        builder.store(total(squares), builder.gep(out, [ir.Constant(_i64, 1)]))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@kernel
def _fetch(file: int, place: int, size: int, address: int) -> bool:
    """Read `size` bytes to an address, from a file or from memory; return whether they are all there."""
    if file == MEMORY:
        _memcpy(np.uintp(address), np.uintp(place), np.uintp(size))
        return True
    done = 0
    while done < size:  # the system may return less than was requested
        number = _pread(np.int32(file), np.uintp(address + done), np.uintp(size - done), place + done)
        if number <= 0:
            return False
        done += number
    return True


@kernel
def multiply_rows(
    query_files: Array,
    query_places: Array,
    files: Array,
    places: Array,
    width: int,
    unit: bool,
    query: Array,
    row: Array,
    addresses: Array,
    sums: Array,
    first: int,
    scores: Array,
) -> int:
    """Score pairs of rows by their dot product, or by their cosine; return the first pair that could not be read.

    Args:
        query_files: int64 [m]: the file of each query; equal neighbours are read once.
        query_places: int64 [m]: where in the file it is, in bytes.
        files: int64 [m], likewise: or `MEMORY`, or `NOWHERE` for a pair without a score.
        places: int64 [m].
        width: Values per row.
        unit: Divide by the norms.
        query: float64 [blocks * BLOCK], working memory; zeros after `width`.
        row: float32 [blocks * BLOCK], likewise.
        addresses: int64 [3]: those of `row`, `sums` and `query`.
        sums: float64 [2], working memory.
        first: The pair to begin with.
        scores: float32 [m], out.
    """
    m, blocks, size = len(files), len(row) // BLOCK, 4 * width
    row_address, sums_address, query_address = addresses[0], addresses[1], addresses[2]
    last_file, last_place, norm = NOWHERE, 0, 1.0
    for i in range(first, m):
        if files[i] == NOWHERE:
            continue
        if query_files[i] != last_file or query_places[i] != last_place:
            if not _fetch(query_files[i], query_places[i], size, row_address):
                return i
            for j in range(width):
                query[j] = row[j]
            _multiply(query_address, row_address, blocks, sums_address)
            last_file, last_place = query_files[i], query_places[i]
            norm = max(np.sqrt(sums[1]), EPSILON)
        address = row_address
        if files[i] == MEMORY and width % BLOCK == 0:
            address = places[i]
        elif not _fetch(files[i], places[i], size, row_address):
            return i
        _multiply(query_address, address, blocks, sums_address)
        if unit:
            scores[i] = sums[0] / (norm * max(np.sqrt(sums[1]), EPSILON))
        else:
            scores[i] = sums[0]
    return m
