"""Texts by number on disk: written once, read a few at a time, and recognised by a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import weakref
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from lookalike.utils.files import remove_leftovers, replacing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from lookalike.utils.arrays import Array

FORMAT = 1
NOTE, BYTES, OFFSETS = "texts.json", "texts.bin", "offsets.bin"
BUFFER = 1 << 20  # bytes to write at a time
TOGETHER = 1 << 20  # bytes of texts to read at a time, where all are read
PREAD = hasattr(os, "pread")


class TextWriter:
    """A context that writes texts into a folder; the folder appears when the context ends without an error.

    A process that is killed leaves nothing that could be taken for the texts. One process at a time may write.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp(), "texts")
        >>> with TextWriter(folder) as writer:
        ...     writer.extend(["one", "", "zwölf"])
        >>> texts = TextFile(folder)
        >>> len(texts), texts[2], texts[:2], texts.take([2, 0, 2])
        (3, 'zwölf', ['one', ''], ['zwölf', 'one', 'zwölf'])
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.count = self.bytes = 0
        self._digest = hashlib.sha256()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        remove_leftovers(self.folder)
        with ExitStack() as stack:
            self._place = stack.enter_context(replacing_folder(self.folder))
            self._files = [
                stack.enter_context((self._place / name).open("wb", buffering=BUFFER)) for name in (BYTES, OFFSETS)
            ]
            self._files[1].write(bytes(8))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            with self._stack:
                for file in self._files:
                    file.close()
                note = {"format": FORMAT, "count": self.count, "bytes": self.bytes, "checksum": self.checksum}
                (self._place / NOTE).write_text(json.dumps(note) + "\n", encoding="utf-8")
        else:
            self._stack.__exit__(kind, error, trace)

    @property
    def checksum(self) -> str:
        """The checksum of the texts so far, as `lookalike.mining.encoding.checksum` computes it."""
        return self._digest.hexdigest()

    def append(self, text: str) -> None:
        """Write one text."""
        self.extend([text])

    def extend(self, texts: Iterable[str]) -> None:
        """Write texts."""
        for text in texts:
            raw = text.encode("utf-8", errors="surrogatepass")
            self.bytes += len(raw)
            self.count += 1
            self._digest.update(len(raw).to_bytes(8, "little"))
            self._digest.update(raw)
            self._files[0].write(raw)
            self._files[1].write(self.bytes.to_bytes(8, "little"))


class TextFile:
    """Texts that a `TextWriter` wrote. Only what is asked for is read, and any number of threads may read.

    Args:
        folder: The folder.

    Raises:
        FileNotFoundError: It holds no texts.
        ValueError: They are damaged, or of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            note = json.loads((self.folder / NOTE).read_text(encoding="utf-8"))
            known = note["format"] == FORMAT
            self._count, self.bytes, self.checksum = int(note["count"]), int(note["bytes"]), str(note["checksum"])
            sizes = [(self.folder / name).stat().st_size for name in (BYTES, OFFSETS)]
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{self.folder} holds no complete texts; write them again.") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            known, sizes = False, []
        if not known or sizes != [self.bytes, 8 * (self._count + 1)]:
            raise ValueError(f"{self.folder} is damaged, or was written by another version; write the texts again.")
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
        self._files = [os.open(self.folder / name, flags) for name in (BYTES, OFFSETS)]
        self._reading = threading.Lock()  # without pread, all threads share the position in a file
        for file in self._files:
            weakref.finalize(self, os.close, file)

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder: another process opens the files itself."""
        return TextFile, (self.folder,)

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> list[str]: ...
    def __getitem__(self, key: int | slice) -> str | list[str]:
        """Return a text by its number, or those of a slice."""
        if isinstance(key, slice):
            ids = range(self._count)[key]
            return self._range(ids.start, max(ids.start, ids.stop)) if ids.step == 1 else self.take(ids)
        number = range(self._count)[key]  # negative numbers count from the end; too large ones raise an IndexError
        return self._range(number, number + 1)[0]

    def __iter__(self) -> Iterator[str]:
        """Return all texts, reading about a megabyte at a time."""
        for part in self.parts():
            yield from part

    def parts(self, most: int = 8192) -> Iterator[list[str]]:
        """Return all texts in lists of at most `most`, of about a megabyte each."""
        first = 0
        while first < self._count:
            offsets = self._offsets(first, min(first + most, self._count))
            number = max(1, int(np.searchsorted(offsets, offsets[0] + TOGETHER, side="right")) - 1)
            yield self._texts(offsets[: number + 1])
            first += number

    def take(self, ids: Any) -> list[str]:
        """Return texts by their numbers, each of which is read once.

        Raises:
            IndexError: There is no such text.
        """
        wanted = np.asarray(ids, np.int64)
        if wanted.size and not 0 <= int(wanted.min()) <= int(wanted.max()) < self._count:
            raise IndexError(
                f"{self.folder} holds the texts 0 to {self._count - 1}, got {wanted.min()} to {wanted.max()}."
            )
        numbers, inverse = np.unique(wanted, return_inverse=True)
        firsts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        lasts = np.append(firsts, len(numbers))[1:]
        runs = zip(numbers[firsts].tolist(), (lasts - firsts).tolist(), strict=True)
        texts = [text for first, number in runs for text in self._range(first, first + number)]
        return [texts[i] for i in inverse.tolist()]

    def sizes(self) -> Array:
        """Return the number of bytes of each text, int64 [len(self)]."""
        return np.diff(self._offsets(0, self._count))

    def _range(self, first: int, last: int) -> list[str]:
        return self._texts(self._offsets(first, last)) if last > first else []

    def _offsets(self, first: int, last: int) -> Array:
        """Return where the texts from `first` to `last` begin, and where the last one ends."""
        return np.frombuffer(self._read(1, 8 * first, 8 * (last + 1 - first)), "<i8")

    def _texts(self, offsets: Array) -> list[str]:
        start = int(offsets[0])
        raw = self._read(0, start, int(offsets[-1]) - start)
        ends = (offsets - start).tolist()
        return [raw[first:last].decode("utf-8", errors="surrogatepass") for first, last in pairwise(ends)]

    def _read(self, which: int, start: int, number: int) -> bytes:
        parts: list[bytes] = []
        file, rest = self._files[which], number
        while rest:  # the system may return less than was requested
            if PREAD:
                part = os.pread(file, rest, start + number - rest)
            else:
                with self._reading:
                    os.lseek(file, start + number - rest, os.SEEK_SET)
                    part = os.read(file, rest)
            if not part:
                raise ValueError(f"{self.folder} ends too early: it was truncated while it was read.")
            parts.append(part)
            rest -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
