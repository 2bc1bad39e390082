"""Write completions as a script for bash, zsh or fish, which runs no Python when a key is pressed."""

from collections.abc import Callable, Sequence
from typing import Literal

from lookalike.cli.words import Command, Typed

Shell = Literal["bash", "zsh", "fish"]

BASH = """\
# Completions of lookalike for bash, where readline completes the names of files:
#     source <(lookalike completion bash)
_lookalike() {
    local IFS=$' \\t\\n' typed command current previous values= flags= commands= files=yes
    read -ra typed <<< "${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && typed+=("")
    current=${typed[${#typed[@]}-1]}
    previous=${typed[${#typed[@]}-2]}
    if [[ $current == --*=* ]]; then
        previous=${current%%=*}
        current=${current#*=}
    fi
    command=" "
    (( ${#typed[@]} > 2 )) && command="${typed[1]} "
    case $command in
        MENUS) (( ${#typed[@]} > 3 )) && command="${typed[1]} ${typed[2]} " ;;
    esac
    case $command in
COMMANDS
        *) return ;;
    esac
    case "$command$previous" in
VALUES
        *)
            if [[ $current == -* ]]; then
                values=$flags files=
            else
                case $command in
POSITIONALS
                    *) values=$commands ;;
                esac
                [[ -n $commands ]] && files=
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    [[ -z $files ]] && compopt +o default 2> /dev/null
    # readline splits words at = and :, and replaces what follows the last of them
    local kept=${current##*[:=]}
    kept=${current%"$kept"}
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    [[ ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2> /dev/null
}
complete -o default -F _lookalike lookalike
"""

ZSH = """\
#compdef lookalike
# Completions of lookalike for zsh, after compinit:
#     source <(lookalike completion zsh)
_lookalike_words_or_files() { compadd -- "$@"; _files }

_lookalike() {
    local -a commands
    local command=
    (( CURRENT > 2 )) && command=$words[2]
    case $command in
        MENUS) (( CURRENT > 3 )) && command="$words[2] $words[3]" ;;
    esac
    case $command in
COMMANDS
    esac
}
if [ "$funcstack[1]" = _lookalike ]; then _lookalike "$@"; else compdef _lookalike lookalike; fi
"""

FISH = """\
# Completions of lookalike for fish:
#     lookalike completion fish | source
function __lookalike_after --description 'Whether exactly these commands were typed, or with -s at least these'
    argparse --stop-nonopt s/started -- $argv
    set -l typed (commandline -opc)
    set -e typed[1]
    set -q _flag_s; or test (count $typed) -eq (count $argv); or return 1
    test (count $typed) -ge (count $argv); or return 1
    for i in (seq (count $argv))
        test "$typed[$i]" = "$argv[$i]"; or return 1
    end
end
complete -c lookalike --no-files
COMMANDS
"""

CONTINUED = "\\\n                "  # a line that goes on in the next


def script(shell: Shell, commands: Sequence[Command]) -> str:
    """Return the script for a shell."""
    write: dict[Shell, Callable[[Sequence[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return write[shell](commands)


def _menus(commands: Sequence[Command]) -> list[str]:
    """Return the names of commands that have commands of their own."""
    return [each.path[0] for each in commands if each.path and each.commands]


def _bash(commands: Sequence[Command]) -> str:
    lines, values, positionals = [], [], []
    for each in commands:
        name = " ".join(each.path) + " "
        flags = " ".join(flag for option in each.options for flag in option.flags)
        after = f' commands="{" ".join(each.commands)}"' if each.commands else ""
        lines.append(f'        "{name}") flags="{flags}"{after} ;;')
        for option in each.options:
            if option.takes_value:
                effect = f'values="{" ".join(option.words)}"' if option.words else ""
                files = "" if option.files else "files="
                pattern = "|".join(f'"{name}{flag}"' for flag in option.flags)
                values.append(f"        {pattern}) {' '.join(filter(None, [effect, files])) or ':'} ;;")
        if words := " ".join(word for one in each.positionals for word in one.words):
            files = "" if any(one.files for one in each.positionals) else " files="
            positionals.append(f'                    "{name}") values="{words}"{files} ;;')
    parts = {"COMMANDS": lines, "VALUES": values, "POSITIONALS": positionals}
    return _filled(BASH, commands, '"{} "', parts)


def _zsh(commands: Sequence[Command]) -> str:
    lines = []
    for each in commands:
        lines.append(f"        {_quoted(' '.join(each.path))})")
        if each.commands:
            described = " ".join(_quoted(f"{name}:{summary}") for name, summary in each.commands.items())
            flags = " ".join(flag for option in each.options for flag in option.flags)
            lines += [
                f"            commands=({described})",
                f"            if [[ $PREFIX == -* ]]; then compadd -- {flags}; else _describe command commands; fi ;;",
            ]
            continue
        shift = len(each.path)
        specs = [_zsh_option(option, flag) for option in each.options for flag in option.flags]
        specs += [_zsh_positional(i, one) for i, one in enumerate(each.positionals, start=1)]
        lines.append(f"            shift {shift} words; (( CURRENT -= {shift} ))")
        lines.append(f"            _arguments -S {f' {CONTINUED}'.join(map(_quoted, specs))} ;;")
    return _filled(ZSH, commands, "{}", {"COMMANDS": lines})


def _zsh_option(option: Typed, flag: str) -> str:
    if not option.takes_value:
        return f"{flag}[{option.help}]"
    star = "*" if option.repeated else ""
    return f"{star}{flag}=[{option.help}]:value:{_zsh_values(option)}"


def _zsh_positional(number: int, argument: Typed) -> str:
    return f"{'*' if argument.repeated else number}:{argument.flags[0].lower()}:{_zsh_values(argument)}"


def _zsh_values(typed: Typed) -> str:
    words = " ".join(typed.words)
    if words and typed.files:
        return f" _lookalike_words_or_files {words}"
    if words:
        return "(" + words.replace(":", "\\:") + ")"
    return "_files" if typed.files else " "


def _fish(commands: Sequence[Command]) -> str:
    lines = []
    for each in commands:
        path = " ".join(each.path)
        here, below = f"'__lookalike_after {path}'", f"'__lookalike_after -s {path}'"
        for name, summary in each.commands.items():
            lines.append(f"complete -c lookalike -n {here} -a {name} -d {_quoted(summary)}")
        where = here if each.commands else below
        for option in each.options:
            for flag in option.flags:
                kind = (" -r -F" if option.files else " -x") if option.takes_value else ""
                words = f" -a {_quoted(' '.join(option.words))}" if option.words else ""
                long = flag.removeprefix("--")
                lines.append(f"complete -c lookalike -n {where} -l {long}{kind}{words} -d {_quoted(option.help)}")
        for argument in each.positionals:
            words = f" -a {_quoted(' '.join(argument.words))}" if argument.words else ""
            files = " -F" if argument.files else ""
            lines.append(f"complete -c lookalike -n {below}{files}{words}")
    return _filled(FISH, commands, "{}", {"COMMANDS": lines})


def _filled(template: str, commands: Sequence[Command], menu: str, parts: dict[str, list[str]]) -> str:
    """Fill in a template: in capitals, the lines of the commands and the pattern of menus."""
    text = template.replace("MENUS", "|".join(menu.format(name) for name in _menus(commands)))
    for name, lines in parts.items():
        text = text.replace(f"{name}\n", "\n".join(lines) + "\n")
    return text


def _quoted(text: str) -> str:
    """Quote for a shell; texts hold no quotes of their own, which `words` removes."""
    return "'" + text.replace("'", "") + "'"
