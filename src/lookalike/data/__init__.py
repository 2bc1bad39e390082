"""Data sets to train and to test on."""

from pathlib import Path

from lookalike.data.retrieval import RetrievalData

DATA_SETS = {
    "glyphs": "scans of characters, labelled: drawn here, no download",
    "glyphs-paired": "the same, one pair of faces per character",
}


def load_data(name: str, *, progress: bool = False) -> RetrievalData:
    """A data set by its name, or a file of glyphs by its path.

    Raises:
        ValueError: There is no such data set.
    """
    from lookalike.data.scans import POOR, glyph_scans  # noqa: PLC0415 - the names above are needed without it

    if name in DATA_SETS:
        return glyph_scans(paired=name.endswith("-paired"), progress=progress)
    if name.endswith(".npz"):
        return glyph_scans(Path(name), degradation=POOR, progress=progress)
    raise ValueError(f"there is no data set {name!r}; there are {', '.join(DATA_SETS)}, and files of glyphs, FILE.npz.")
