"""`lookalike explore`: a local page to look at hard negatives and to mark false ones."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lookalike.cli.parsing import Hint, Positional, parse
from lookalike.utils.checks import checked_bits, checked_integer


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike explore`."""

    source: Positional[Path]
    """The folder of a finished run, or embeddings (.npy, .npz, .safetensors, .parquet)."""
    labels: Path | None = None
    """Labels of the embeddings: a .npy file, or one label per line."""
    texts: Path | None = None
    """Texts of the embeddings, to show: one per line, or a table with a column text."""
    images: Path | None = None
    """Images of the embeddings, to show: a folder, in the order of the names, or a file with one path per line."""
    marks: Annotated[Path | None, Hint(default="that of the run, or FILE.same.jsonl")] = None
    """File to read and save marks, the pairs that are the same."""
    bits: Annotated[int | None, Hint(default="that of the run's sign codes, or 512")] = None
    """Length of the sign codes that the page compares."""
    port: Annotated[int, Hint(default="any that is free")] = 0
    """Port on 127.0.0.1."""
    browser: bool = True
    """Open the page in a browser."""

    def __post_init__(self) -> None:
        checked_integer("port", self.port)
        if self.port > 65535:
            raise ValueError(f"port must be at most 65535, got {self.port}.")
        if self.bits is not None:
            checked_bits(self.bits)


def main(args: list[str]) -> None:
    """Look at hard negatives on a local page, likely false ones first, and mark pairs that are the same."""
    options = parse(Options, args, "explore", main.__doc__)
    source, shown = options.source, {"labels": options.labels, "texts": options.texts, "images": options.images}
    if source.is_dir() and (given := next((name for name, path in shown.items() if path is not None), None)):
        raise ValueError(f"--{given} belongs to a file of embeddings; a run knows its own data.")
    if not source.is_dir() and not source.with_name(source.name.split(":")[0]).exists() and not source.exists():
        raise FileNotFoundError(f"{source}: there is no such run or file of embeddings.")

    from lookalike.explore.server import Server
    from lookalike.explore.session import Session

    if source.is_dir():
        from lookalike.explore.runs import explored_run

        explored = explored_run(source, bits=options.bits, progress=True)
    else:
        from lookalike.explore.sources import BITS, explored_file

        explored = explored_file(source, **shown, bits=options.bits or BITS, progress=True)
    session = Session(explored, options.marks)
    server = Server(session, options.port)
    print(f"{explored.title}: {explored.content.n:,} samples in {explored.neighbours.bits} bits.")
    print(f"Open {server.address}", flush=True)
    print(f"Marks are saved to {session.marks_path}. Ctrl-C ends the server.", flush=True)
    if options.browser:
        import webbrowser

        webbrowser.open(server.address)
    with contextlib.suppress(KeyboardInterrupt):  # the way to end it
        server.serve()
    about = session.about()
    marked = "1 pair is marked." if about["marks"] == 1 else f"{about['marks']:,} pairs are marked."
    print(f"\n{marked}" + (f" To use the marks: {about['use']}" if about["marks"] else ""))
