"""Take the screenshots of docs/explore.md in Chromium, from data that anyone can make.

    python docs/pictures/explore.py

The images are the built-in glyphs, of a run of one epoch with a small network. The texts are the Unicode names of
letters, labelled by the plain letter and embedded by their trigrams.
"""

import sys
import tempfile
import threading
import unicodedata
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # for the driver of the browser, which the tests share

from lookalike.explore.runs import explored_run  # noqa: E402
from lookalike.explore.server import Server  # noqa: E402
from lookalike.explore.session import Session  # noqa: E402
from lookalike.explore.sources import explored_file  # noqa: E402
from lookalike.training.run import train  # noqa: E402
from lookalike.training.settings import Settings  # noqa: E402
from tests.report.browser import Browser, find_chromium  # noqa: E402

DIM = 512  # trigrams are counted in as many places
SCREENS = {"desktop": (1280, 800, False), "phone": (390, 844, True)}
READY = (  # images below the screen are loaded when they come near it
    "document.querySelector('.item') && "
    "[...document.images].every((image) => image.complete || image.getBoundingClientRect().top > innerHeight)"
)


def main() -> None:
    """Make the data, serve them, and take the pictures."""
    with tempfile.TemporaryDirectory() as name, Browser(find_chromium()) as browser:
        folder = Path(name)
        settings = Settings(epochs=1, pairs_per_batch=64, bits=128)
        train("glyphs", settings, out=folder / "glyphs", model={"width": 8, "dim": 64})
        shoot(browser, Session(explored_run(folder / "glyphs")), "", "#sample/14390")
        write_letters(folder)
        texts = explored_file(folder / "letters.npy", labels=folder / "labels.txt", texts=folder / "texts.txt")
        shoot(browser, Session(texts), "-texts", "#suspects")


def shoot(browser: Browser, session: Session, name: str, place: str) -> None:
    """Serve a page and take its picture on every screen, once likely false negatives and batches are known."""
    server = Server(session)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        for screen, (width, height, dark) in SCREENS.items():
            browser.show(f"{server.address}", width=width, height=height, dark=dark)
            session.wait(600)
            browser.show("about:blank", width=width, height=height)
            browser.show(f"{server.address}{place}", width=width, height=height, dark=dark)
            browser.wait_for(READY)
            browser.screenshot(ROOT / "docs" / f"explore{name}-{screen}.png", (0, 0, width, height))
    finally:
        server.stop()
        thread.join()


def write_letters(folder: Path) -> None:
    """Write the names of letters, the letter that each is a form of, and the counts of trigrams in the names."""
    letters = [chr(i) for i in range(0x250) if unicodedata.category(chr(i)).startswith("L")]
    letters += [chr(i) for i in range(0x1E00, 0x2000) if unicodedata.category(chr(i)).startswith("L")]
    names = [unicodedata.name(letter).lower() for letter in letters]
    labels = [unicodedata.name(unicodedata.normalize("NFD", letter)[0].lower()).lower() for letter in letters]
    x = np.zeros((len(names), DIM), np.float32)
    for row, name in enumerate(names):
        for start in range(len(name) - 2):
            x[row, zlib.crc32(name[start : start + 3].encode()) % DIM] += 1
    np.save(folder / "letters.npy", x)
    (folder / "texts.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    (folder / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
