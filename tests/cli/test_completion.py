"""Shells complete commands, options, choices and data sets, with scripts that run no Python."""

import json
import shutil
import subprocess
import sys

import pytest

from lookalike.cli import COMMANDS
from lookalike.cli.bench import PEERS
from lookalike.cli.runs import MODELS, TRACKERS
from lookalike.cli.words import commands
from lookalike.data import data_sets
from lookalike.training import encoders, trackers
from tests.processes import PATIENCE

DATA_SETS = [name for name, entry in data_sets().items() if entry.suffix is None]
BASH = """
source "$1"
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    _lookalike
    echo "${COMPREPLY[*]}"
done
"""
ZSH = """
zmodload zsh/zpty
export TERM=dumb SCRIPT=$1 OFFERED=$2
zpty shell "zsh -f -i"
zpty -w shell 'PS1=; autoload -U compinit; compinit -u -D; source $SCRIPT'
zpty -w shell 'offer() { zle expand-or-complete; print -r -- $BUFFER >> $OFFERED; BUFFER=; }'
zpty -w shell 'zle -N offer; bindkey ^T offer'
zpty -w shell 'print read""y'
while zpty -r shell seen && [[ $seen != ready* ]]; do :; done
while IFS= read -r line; do zpty -w -n shell "$line"$'\\C-t'; done
zpty -w shell exit
while zpty -r shell seen; do :; done
"""
TYPED = {  # what is typed, and what it is completed to where there is one way
    "lookalike tr": ["train"],
    "lookalike data ch": ["check"],
    "lookalike train --sampler inc": ["incremental"],
    "lookalike train vigor-s": ["vigor-same"],
    "lookalike mine --output-format n-": ["n-tuple"],
    "lookalike completion f": ["fish"],
    "lookalike --vers": ["--version"],
    "lookalike train --learn": ["--learning-rate"],
    "lookalike data check --de": ["--decode"],
}


def completed_by_bash(script, *lines):
    """What bash offers for each line, with the cursor at its end."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    command = ["bash", "--norc", "-c", BASH, "bash", script]
    typed = "\n".join(lines) + "\n"
    run = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert run.stderr == ""
    return [line.split() for line in run.stdout.splitlines()]


@pytest.fixture
def script(run_here, tmp_path):
    """Write the script for a shell into a file."""

    def write(shell):
        code, out, err = run_here("completion", shell)
        assert (code, err) == (0, "")
        path = tmp_path / f"completion.{shell}"
        path.write_text(out)
        return path

    return write


def test_bash_completes_commands_options_choices_and_data_sets(script):
    offers = {
        "lookalike ": list(COMMANDS),
        **TYPED,
        "lookalike train ": DATA_SETS,
        "lookalike data check s": ["sop"],
        "lookalike train --sampler l": ["lsh"],
        "lookalike train --sampler=l": ["lsh"],
        "lookalike train sop --mod": ["--model", "--model-option"],
        "lookalike train --model t": ["timm:", "transformers:"],
        "lookalike train --epochs ": [],
        "lookalike bench search --device ": list(PEERS),
        "lookalike bench search --ou": ["--out"],
        "lookalike data ": ["list", "check"],
        "lookalike data sop ": [],
        "lookalike nothing --": [],
        "lookalike train --no-res": [],
    }
    assert completed_by_bash(script("bash"), *offers) == list(offers.values())


def test_bash_knows_every_option(script):
    known = [each for each in commands() if not each.commands]
    lines = [f"lookalike {' '.join(each.path)} --" for each in known]
    expected = [[flag for option in each.options for flag in option.flags] for each in known]
    assert completed_by_bash(script("bash"), *lines) == expected


def test_every_command_of_the_menus_is_known():
    paths = [each.path for each in commands()]
    assert len(paths) == len(set(paths))
    assert {path[0] for path in paths if path} == set(COMMANDS)


def test_the_words_are_those_of_the_library():
    assert [word.rstrip(":") for word in MODELS] == list(encoders.ENCODERS)
    assert trackers.NAMES == TRACKERS


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_the_same(script):
    path = script("fish")
    for line, expected in TYPED.items():
        command = ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=path.parent)
        assert [each.partition("\t")[0] for each in run.stdout.splitlines()] == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_completes_the_same(script):
    path = script("zsh")
    offered = path.with_suffix(".offered")
    command = ["zsh", "-f", "-c", ZSH, "zsh", path, offered]
    typed = "\n".join(TYPED) + "\n"
    subprocess.run(command, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=True)
    completed = [line.rstrip(" =").rpartition(" ")[2] for line in offered.read_text().splitlines()]
    assert [[word] for word in completed] == list(TYPED.values())


@pytest.mark.parametrize(("shell", "named"), [("tcsh", "SHELL must be"), (None, "SHELL")])
def test_other_shells_are_refused(run_here, shell, named):
    code, out, err = run_here("completion", *[shell] * (shell is not None))
    assert (code, out) == (2, "")
    assert named in err


def test_the_script_is_written_without_torch(tmp_path):
    program = "import json, sys; from lookalike.cli import main; main(['completion', 'bash']); "
    program += "print(json.dumps([name in sys.modules for name in ('torch', 'numpy', 'numba', 'yaml', 'rich')]))"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=tmp_path)
    assert not any(json.loads(run.stdout.splitlines()[-1]))
