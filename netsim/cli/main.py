"""Start of the program: find the command, read its arguments, run it, and turn errors into lines and exit codes.

A command is a module of this package named like it (dashes become underscores) with `HELP`, `add_arguments(parser)` and `run(args) -> int`.
Only the chosen one is imported, and of the others no more than the text of `HELP` is read: an import costs its time on every rank.
`PARALLEL = True` in a command's module lets all ranks run it; any other command runs on rank 0 while the others end at once.

Exit codes: 0 done; 1 the program failed (traceback); 2 the input cannot be (one line per mistake); 130 and 143 interrupted.
"""

import argparse
import contextlib
import importlib
import os
import re
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from netsim import parallel
from netsim.errors import InputError, did_you_mean
from netsim.launch import launched, quiet_threads

_PARALLEL = re.compile(r"^PARALLEL = True$", re.MULTILINE)
_HELP = re.compile(r'^HELP(?:: str)? = (?:\(\s*)?"([^"\n]*)"', re.MULTILINE)


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments like any other wrong input, so that they are printed once."""

    def error(self, message: str) -> NoReturn:
        raise InputError([f"{self.prog}: {message}", f"{self.prog} --help lists the arguments"])


def commands() -> dict[str, str]:
    """Command -> its line of help, without importing any of them."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        match = _HELP.search(file.read_text(encoding="utf-8"))
        if match:
            found[file.stem.replace("_", "-")] = match.group(1)
    return found


def usage() -> str:
    """The text of `python -m netsim --help`."""
    known = commands()
    width = max(map(len, known), default=0)
    lines = [f"  {name:{width}}  {line}" for name, line in known.items()]
    head = ["usage: python -m netsim COMMAND ...", "", "A network co-simulator for LLM training clusters.", "", "commands:"]
    return "\n".join([*head, *lines, "", "python -m netsim COMMAND --help lists the arguments of a command."])


def _takes_part(name: str) -> bool:
    """Whether this rank runs the command `name`; known before its module, and all that it needs, is imported on every rank."""
    known = commands()
    if name not in known:
        raise InputError(f"netsim: expected a command ({', '.join(known)}); got {name!r}{did_you_mean(name, known)}")
    if not _PARALLEL.search(_file(name).read_text(encoding="utf-8")):
        return launched().rank == 0
    if not parallel.start().idle:
        return True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return False


def _file(name: str) -> Path:
    return Path(__file__).with_name(name.replace("-", "_") + ".py")


def _command(name: str, words: list[str]) -> int:
    command = importlib.import_module("netsim.cli." + _file(name).stem)
    parser = Parser(prog=f"netsim {name}", description=command.HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_arguments(parser)
    return int(command.run(parser.parse_args(words)) or 0)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        from netsim import __version__

        print(f"netsim {__version__}")
        return 0
    return _command(words[0], words[1:]) if _takes_part(words[0]) else 0


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds the stack, so that what is open is closed; the simulation puts a handler of its own in place while it runs."""
    raise SystemExit(128 + number)


def main(words: list[str] | None = None) -> int:
    """Run one command and return the exit code of the process; `words` are the arguments after the program's name."""
    quiet_threads()
    signal.signal(signal.SIGTERM, _terminate)
    first = launched().rank == 0
    with contextlib.ExitStack() as stack:
        if not first:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        try:
            code = _run(sys.argv[1:] if words is None else words)
            sys.stdout.flush()
        except InputError as error:
            if first or error.alone:
                print("\n".join(error.lines), file=sys.stderr, flush=True)
            code = 2
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return parallel.finish(code)
