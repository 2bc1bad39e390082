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
MEMORY = -1  # in place of a file: the place is an address
EPSILON = 1e-12  # the smallest norm, as in torch.nn.functional.normalize

_WIDTH = 8
_i32, _i64, _float, _double = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
_floats, _doubles = ir.VectorType(_float, _WIDTH), ir.VectorType(_double, _WIDTH)

_pread = types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))
_memcpy = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))


@intrinsic
def _multiply(typingctx: Any, first: Any, second: Any, blocks: Any) -> Any:  # noqa: ARG001 - numba prescribes it
    """Return the dot product of two rows, float64, given the addresses of float32 [blocks * BLOCK]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba prescribes it
        first, second, blocks = args
        zeros = ir.Constant(_doubles, [0.0] * _WIDTH)
        lanes = [cgutils.alloca_once_value(builder, zeros) for _ in range(BLOCK // _WIDTH)]

        def vector(address: Any, index: Any) -> Any:
            place = builder.gep(builder.inttoptr(address, _float.as_pointer()), [index])
            return builder.fpext(builder.load(builder.bitcast(place, _floats.as_pointer()), align=4), _doubles)

        def total() -> Any:
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
            for i, lane in enumerate(lanes):
                start = builder.mul(block.index, ir.Constant(_i64, BLOCK))
                start = builder.add(start, ir.Constant(_i64, i * _WIDTH))
                product = builder.fmul(vector(first, start), vector(second, start))
                builder.store(builder.fadd(builder.load(lane), product), lane)
        return total()

    return types.float64(types.intp, types.intp, types.intp), codegen


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
def read_rows(files: Array, places: Array, width: int, address: int, stride: int, norms: Array, first: int) -> int:
    """Read rows into memory, one every `stride` values; return the first one that could not be read.

    Args:
        files: int64 [n]: the file of each row, or `MEMORY`.
        places: int64 [n]: where in the file it is, in bytes, or its address.
        width: Values per row.
        address: Of float32 [n, stride], zeros after `width`; out.
        stride: A multiple of `BLOCK`.
        norms: float64 [n], out.
        first: The row to begin with.
    """
    for i in range(first, len(files)):
        row = address + 4 * stride * i
        if not _fetch(files[i], places[i], 4 * width, row):
            return i
        norms[i] = max(np.sqrt(_multiply(row, row, stride // BLOCK)), EPSILON)
    return len(files)


@kernel
def multiply_rows(
    files: Array,
    places: Array,
    width: int,
    owners: Array,
    queries: int,
    norms: Array,
    buffer: int,
    stride: int,
    unit: bool,
    targets: Array,
    scores: Array,
    first: int,
) -> int:
    """Score pairs by their dot product, or by their cosine; return the first pair that could not be read.

    Args:
        files: int64 [m], as for `read_rows`: of the second row of each pair. Equal neighbours are read once.
        places: int64 [m].
        width: Values per row.
        owners: int64 [m]: the number of the query.
        queries: The address of the queries, float32 [n, stride].
        norms: float64 [n].
        buffer: The address of float32 [stride], zeros after `width`: working memory.
        stride: A multiple of `BLOCK`.
        unit: Divide by the norms.
        targets: int64 [m]: where in `scores` each score belongs.
        scores: float32, out.
        first: The pair to begin with.
    """
    blocks, row, norm = stride // BLOCK, buffer, 1.0
    for i in range(first, len(files)):
        if i == first or files[i] != files[i - 1] or places[i] != places[i - 1]:
            if files[i] == MEMORY and width == stride:
                row = places[i]
            else:
                row = buffer
                if not _fetch(files[i], places[i], 4 * width, row):
                    return i
            if unit:
                norm = max(np.sqrt(_multiply(row, row, blocks)), EPSILON)
        score = _multiply(queries + 4 * stride * owners[i], row, blocks)
        scores[targets[i]] = score / (norms[owners[i]] * norm) if unit else score
    return len(files)
