"""The command line. Only the module of the command that was typed is imported, so that `--help` answers at once."""

import importlib
import os
import re
import select
import sys
from collections.abc import Sequence
from functools import partial

from lookalike import __version__
from lookalike.cli.menu import run_one_of
from lookalike.training.errors import LostRankError
from lookalike.utils.errors import RankFailedError

COMMANDS = {  # modules of this package
    "train": "Train an embedding model with hard negatives.",
    "compare": "Train with several samplers and seeds, and print a table.",
    "mine": "Find hard negatives for pairs of texts or for embeddings.",
    "export": "Write the model of a run for other libraries and the Hub.",
    "analyze": "Compare the hard negatives found in bits with the true ones.",
    "plan": "Say which strategy suits a data set, or how many bits it takes.",
    "report": "Show runs, comparisons and analyses on one HTML page.",
    "explore": "Look at hard negatives on a local page, and mark false ones.",
    "data": "List data sets, or check one.",
    "bench": "Measure speed on this machine.",
    "demo": "Show overlap, time and memory on synthetic embeddings.",
    "completion": "Print what a shell needs to complete commands and options.",
}
DESCRIPTION = "Hard negatives for contrastive learning, found in bits."
FOR_RANKS = ("train",)  # commands that several processes of a launcher carry out together
FAILED, USER_ERROR = 1, 2  # exit codes
INTERRUPTED, UNREAD = 130, 141  # what shells use for Ctrl-C, and for a pipe that nobody reads


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake prints one line on standard error and exits with 2.

    Args:
        args: The arguments after `lookalike`; by default those that were typed.
    """
    args = list(sys.argv[1:] if args is None else args)
    try:
        try:
            if args == ["--version"]:
                print(f"lookalike {__version__}")
            else:
                commands = {name: (summary, partial(_run, name)) for name, summary in COMMANDS.items()}
                run_one_of(commands, args, "lookalike", DESCRIPTION)
        finally:
            sys.stdout.flush()  # a reader that is gone is noticed here, not when Python ends
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _is_unread():
            sys.exit(UNREAD)
        said = str(error) if error.errno is None else f"{error.filename or 'the system'}: {error.strerror}."
        _fail(said, args)
    except (ValueError, TypeError, ImportError) as error:
        _fail(str(error), args)
    except RankFailedError as error:
        _fail(str(error), args, status=FAILED)
    except LostRankError as error:  # every rank says so, because rank 0 may be the one that is lost
        _fail(str(error), args, status=FAILED, rank=os.environ.get("RANK"))
    except KeyboardInterrupt:
        print("\nlookalike: interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _run(name: str, args: list[str]) -> None:
    if os.environ.get("WORLD_SIZE", "1") != "1" and name not in FOR_RANKS:
        raise ValueError(
            f"lookalike {name} runs in a single process: start it without torchrun or accelerate launch, which are for "
            f"lookalike {', '.join(FOR_RANKS)}."
        )
    importlib.import_module(f"lookalike.cli.{name}").main(args)


def _is_unread() -> bool:
    """Return whether nobody reads what is printed any more, as in `lookalike ... | head`."""
    out = select.poll()
    out.register(sys.stdout.fileno(), 0)
    if not out.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains of the rest when it ends
    return True


def _fail(error: str, args: list[str], *, status: int = USER_ERROR, rank: str | None = None) -> None:
    if os.environ.get("RANK", "0") not in ("0", rank):  # the ranks of a launcher make the same mistake
        sys.exit(status)
    command = sys.modules.get(f"lookalike.cli.{args[0]}") if args else None
    if (options := getattr(command, "Options", None)) is not None:
        error = with_options(error, options)
    said = f"lookalike: {error}" if rank is None else f"lookalike, rank {rank}: {error}"
    print(f"\033[31m{said}\033[0m" if sys.stderr.isatty() else said, file=sys.stderr)
    sys.exit(status)


def with_options(error: str, options: type) -> str:
    """Replace the arguments that an error of the library names by options of the command.

    The library names an argument to give as `force=True`, `header=False`, `out=`, `bits=512` or `columns="a,b"`. This
    is the one place that turns these into `--force`, `--no-header`, `--out`, `--bits 512` and `--columns a,b`; names
    that are not options stay.

    Args:
        error: The message of the library.
        options: The dataclass that declares the options of the command.
    """
    from lookalike.cli.options import options_of

    known = options_of(options)

    def as_option(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip('"')
        if name not in known:
            return found[0]
        if value == "False":
            return known[name].flag.replace("--", "--no-", 1)
        return known[name].flag if value == "True" else f"{known[name].flag} {value}".rstrip()

    return re.sub(r'(?:^|(?<=[\s(]))([a-z][a-z_]*)=("[^"]*"|(?:[\w:/-]|\.(?=\w))*)', as_option, error)
