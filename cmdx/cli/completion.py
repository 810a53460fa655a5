"""
``python -m cmdx completion bash``: a script that completes commands in a shell.

1. the script asks this command what may stand where the cursor is   ``SCRIPTS``
2. the line is taken apart                                           ``completions``
3. commands, targets, inputs and their values are offered            ``words_after``

To know the inputs of a task, its module is imported; what that prints is thrown away.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cmdx.cli.describe import inputs_of_steps
from cmdx.cli.queues import queue_names
from cmdx.cli.targets import import_task, load_module, task_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

SCRIPTS = {
    "bash": """\
# eval "$(cmdx completion bash)"
_cmdx() {
    local line=${COMP_LINE:0:COMP_POINT} IFS=$'\\n'
    local word=${line##*[[:space:]]} breaks=${COMP_WORDBREAKS//[^:=]} kept=
    [[ $breaks ]] && kept=${word%"${word##*[$breaks]}"}  # bash replaces what follows
    COMPREPLY=($(cmdx completion bash --line "$line" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == *[:=] ]] && compopt -o nospace
}
complete -o default -F _cmdx cmdx
""",
    "zsh": """\
# eval "$(cmdx completion zsh)", after compinit
_cmdx() {
    local -a whole open
    local word line="${(j: :)words[1,CURRENT-1]} $PREFIX"  # of this command alone
    for word in ${(f)"$(cmdx completion zsh --line "$line" 2>/dev/null)"}; do
        if [[ $word == *[:=] ]]; then open+=("$word"); else whole+=("$word"); fi
    done
    (( $#whole + $#open )) || { _files; return }
    compadd -S '' -- $open
    compadd -- $whole
}
compdef _cmdx cmdx
""",
    "fish": """\
# cmdx completion fish | source
function __cmdx_words
    set -l line (commandline -cp | string collect)
    set -l words (cmdx completion fish --line $line 2>/dev/null)
    if set -q words[1]
        printf '%s\\n' $words
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c cmdx -f -a '(__cmdx_words)'
""",
}


def add_completion(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``completion``."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script for the completion of `cmdx` in a shell. For bash, "
        'add this to ~/.bashrc: eval "$(cmdx completion bash)".',
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS))
    parser.add_argument("--line", help="print what may follow this line instead")
    parser.set_defaults(run=run_completion)


def run_completion(asked: argparse.Namespace) -> int:
    """Print the script, or what may stand at the end of a line."""
    if asked.line is None:
        sys.stdout.write(SCRIPTS[asked.shell])
        return 0
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        found = completions(asked.line, asked.command_line())
    sys.stdout.writelines(f"{word}\n" for word in found)
    return 0


def completions(line: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the words that the last word of *line* may become."""
    *before, last = line.split(" ")
    _, *before = [word for word in before if word] or [""]
    try:
        found = list(words_after(before, last, parser))
    except Exception:  # of a module that cannot be imported
        return []
    return [word for word in found if word.startswith(last)]


def words_after(
    before: Sequence[str], last: str, parser: argparse.ArgumentParser
) -> Iterator[str]:
    """Yield what may stand after the words *before*, whatever *last* begins with."""
    line = Line.of(before, parser)
    command, given = line.words[0] if line.words else "", line.words[1:]
    if line.option is not None:
        yield from map(str, line.option.choices or ())
    elif last.startswith("-"):
        yield from options_of(line.parser)
    elif command in LISTERS and not given:
        yield from targets(last, LISTERS[command])
    elif command == "run":
        yield from input_words(given, last)
    else:
        yield from choices_of(line.parser, line.taken)


@attrs.define
class Line:
    """
    The words of a line, as far as it is written.

    Args:
        parser: That of the command, or of its action.
        words: Those that are neither options nor values of options.
        taken: How many of them *parser* has taken.
        option: The one that waits for its value.
    """

    parser: argparse.ArgumentParser
    words: list[str] = attrs.field(factory=list)
    taken: int = 0
    option: argparse.Action | None = None

    @classmethod
    def of(cls, written: Sequence[str], parser: argparse.ArgumentParser) -> Line:
        """Read what is *written*."""
        line = cls(parser)
        for word in written:
            line.take(word)
        return line

    def take(self, word: str) -> None:
        """Take the next word: the value of an option, an option, or another word."""
        if self.option is not None:
            self.option = None
        elif word.startswith("-"):
            option = self.parser._option_string_actions.get(word)
            self.option = None if option is None or option.nargs == 0 else option
        else:
            self.words.append(word)
            inner = subparsers_of(self.parser).get(word)
            self.taken = self.taken + 1 if inner is None else 0
            self.parser = inner or self.parser


def subparsers_of(
    parser: argparse.ArgumentParser,
) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of the commands or actions of *parser*, by name."""
    choices = (action.choices for action in parser._actions)
    return next((found for found in choices if isinstance(found, dict)), {})


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options of a command that its help shows."""
    options = parser._option_string_actions.items()
    return [
        name
        for name, option in options
        if name.startswith("--") and option.help != "==SUPPRESS=="
    ]


def choices_of(parser: argparse.ArgumentParser, taken: int) -> list[str]:
    """Return the choices for the word after the *taken* ones, such as of ``demo``."""
    actions = [action for action in parser._actions if not action.option_strings]
    return [
        str(choice)
        for action in actions[taken : taken + 1]
        for choice in action.choices or ()
    ]


# -- targets ---------------------------------------------------------------------------

LISTERS: dict[str, Callable[[ModuleType], list[str]]] = {
    "run": task_names,
    "inspect": task_names,
    "worker": queue_names,
    "jobs": queue_names,
}
"""The commands that take ``module:name``, with what lists the names of a module."""


def targets(last: str, names_of: Callable[[ModuleType], list[str]]) -> list[str]:
    """Return targets: modules of the working folder, or what one of them has."""
    module, colon, _ = last.partition(":")
    if not colon:
        return [f"{name}:" for name in module_names(module.rpartition(".")[0])]
    return [f"{module}:{name}" for name in names_of(load_module(module, "name"))]


def module_names(package: str) -> list[str]:
    """Return the modules in a folder below the working folder, without importing."""
    folder, start = Path(*package.split(".")), f"{package}." if package else ""
    files = [path.stem for path in folder.glob("[!_.]*.py")]
    packages = [path.parent.name for path in folder.glob("[!_.]*/__init__.py")]
    return sorted(f"{start}{name}" for name in (*files, *packages))


# -- inputs ----------------------------------------------------------------------------


def input_words(given: Sequence[str], last: str) -> list[str]:
    """Return the inputs of the task that are not given, or the values of one."""
    target, *words = given
    task = import_task(target)
    declared = task.inputs_schema()["properties"]
    inputs = declared or {key: {} for key in inputs_of_steps(task)}
    key, sign, _ = last.partition("=")
    if sign:
        found = values_of(inputs.get(key, {}))
        return [f"{key}={value}" for value in found]
    known = {word.partition("=")[0] for word in words}
    many = {name for name, schema in inputs.items() if takes_many(schema)}
    return [f"{name}=" for name in inputs if name not in known - many]


def takes_many(schema: Mapping[str, Any]) -> bool:
    """Tell whether an input may be given several times, as lists are."""
    is_list = schema.get("type") == "array"
    return is_list or any(map(takes_many, schema.get("anyOf", ())))


def values_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the values that *schema* names; none if there are too many to name."""
    if schema.get("type") == "boolean":
        return ["true", "false"]
    members = [*schema.get("anyOf", ()), *filter(None, (schema.get("items"),))]
    deeper = [value for member in members for value in values_of(member)]
    return [*map(str, schema.get("enum", ())), *deeper]
