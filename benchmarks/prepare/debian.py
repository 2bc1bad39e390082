"""Make pairs of query and reference from the short and long descriptions of Debian packages."""

import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path

from lookalike.utils.files import write_text

HEADING = "query\treference"


def descriptions(source: Path, output: Path) -> None:
    """Write the pairs of a Translation-en.xz, or of a .tsv.gz with package, short and long description.

    Raises:
        ValueError: The source is neither.
    """
    if source.name.endswith(".xz"):
        with lzma.open(source, "rt", encoding="utf-8") as file:
            pairs = list(parsed(file.read()))
    elif source.name.endswith(".tsv.gz"):
        with gzip.open(source, "rt", encoding="utf-8") as file:
            pairs = [(short, long) for _, short, long in (line.rstrip("\n").split("\t") for line in file)]
    else:
        raise ValueError(f"{source} is neither a Translation-en.xz nor a .tsv.gz.")
    write_text(output, "".join(f"{line}\n" for line in (HEADING, *("\t".join(pair) for pair in pairs))))


def parsed(text: str) -> Iterator[tuple[str, str]]:
    """Yield the short and the long description of every entry that has both.

    Lines of a long description are joined with spaces, without the lone full stops that separate its paragraphs.
    """
    for entry in text.split("\n\n"):
        lines = entry.split("\n")
        begins = next((i for i, line in enumerate(lines) if line.startswith("Description-en: ")), None)
        if begins is None:
            continue
        short = lines[begins].removeprefix("Description-en: ")
        long = " ".join(line.strip() for line in lines[begins + 1 :] if line.strip() not in ("", "."))
        if long:
            yield short, long
