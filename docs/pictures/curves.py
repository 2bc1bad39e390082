"""Take the screenshot of TensorBoard in docs/training.md in Chromium: two samplers, and a run that was resumed.

    python docs/pictures/curves.py

The runs are of three epochs on the built-in glyphs, with a small network.
"""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # for the driver of the browser, which the tests share

from lookalike.training.run import train  # noqa: E402
from lookalike.training.settings import Settings  # noqa: E402
from tests.report.browser import Browser, find_chromium  # noqa: E402

SCREEN = (1600, 850)
CURVES = r"^train/loss|^mining/(hardest_negative|seconds)|^test/(recall@1|mrr@10)$|^epoch/hardest"
SETTINGS = '{"timeSeriesSettingsPaneOpened": false, "ignoreOutliers": false, "stepSelectorEnabled": false}'
CARDS = 6
PATIENCE = 60  # seconds until TensorBoard answers
SHOWN = f"document.querySelectorAll('scalar-card svg path, scalar-card canvas').length >= {CARDS}"


def main() -> None:
    """Train, serve the runs, and take the picture."""
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name)
        for sampler in ("random", "lsh"):
            log_run(runs / sampler, sampler)
        try:
            log_run(runs / "lsh-killed-and-resumed", "lsh", seed=1, on_epoch=stop)
        except KeyboardInterrupt:
            log_run(runs / "lsh-killed-and-resumed", "lsh", seed=1, resume=True)
        shoot(runs, ROOT / "docs" / "tensorboard.png")


def log_run(out: Path, sampler: str, seed: int = 0, **options: object) -> None:
    """Train a small network, and log it."""
    settings = Settings(sampler=sampler, bits=512, epochs=3, pairs_per_batch=64, evaluate_every=1, seed=seed)
    train("glyphs", settings, out=out, model={"width": 8, "dim": 64}, report_to="tensorboard", **options)


def stop(epoch: object) -> None:
    """Press Ctrl-C after the first epoch."""
    if epoch.epoch == 1:
        raise KeyboardInterrupt


def shoot(runs: Path, picture: Path) -> None:
    """Serve runs in TensorBoard, and take a picture of their curves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    line = ["tensorboard.main", "--logdir", str(runs), "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-m", *line], **quiet)  # noqa: S603 - our own line
    try:
        wait_for(address)
        with Browser(find_chromium()) as browser:
            width, height = SCREEN
            browser.show(address, width=width, height=height)
            browser.evaluate(f"localStorage.setItem('_tb_global_settings', '{SETTINGS}')")
            browser.show("about:blank", width=width, height=height)
            browser.show(f"{address}/?tagFilter={quote(CURVES)}&smoothing=0#timeseries", width=width, height=height)
            browser.wait_for(SHOWN)
            browser.evaluate("new Promise((done) => setTimeout(done, 3000))")  # curves move to their places
            browser.screenshot(picture, (0, 0, width, height))
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str) -> None:
    """Wait until a server answers."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        try:
            with urlopen(address):  # noqa: S310 - our own address
                return
        except URLError:
            time.sleep(0.1)
    raise TimeoutError(f"TensorBoard does not answer at {address}; run it by hand to see why.")


if __name__ == "__main__":
    main()
