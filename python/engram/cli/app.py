"""The application that the verbs add themselves to, and the arguments that they share."""

from __future__ import annotations

import contextlib
import enum
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

import engram
from engram import _starting
from engram.cli import completion, output
from engram.cli.terminal import give_up
from engram.errors import ArgumentError, NotFoundError
from engram.index import check_mode
from engram.paths import PROTOCOL, ClusterUrl, cluster_of, is_url, stripped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.models import CommandInfo

    from engram.index import IndexMode
    from engram.namespace import Namespace
    from engram.pool import Pool


def _without_types(params: list[Any]) -> list[Any]:
    """Return parameters that help shows without a type where the word for them says enough."""
    for param in params:
        if param.param_type_name == "argument" or param.is_bool_flag:
            param.__dict__["display_type_rich"] = _no_type
    return params


def _no_type(ctx: Any) -> None:
    """Return what help shows as a type: nothing."""
    del ctx


class _Reader:
    """What reads a parameter's words: texts and paths as they are, anything else as Typer does.

    Typer asks pydantic about every value, and loading it takes longer than most verbs do.
    """

    def __init__(self, param: Any) -> None:
        self._of_typer = param.get_runtime_param

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """Return a parameter's value, as Typer's own reader would."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if value is param.default and isinstance(value, (int, float, enum.Enum)):
            return value
        wanted, words = param.type_descriptor, value if several else [value]
        parser = wanted.parameter_info.parser
        if parser is None:
            if wanted.annotation not in (str, list[str]):
                return self._of_typer().coerce(value, param=param, ctx=ctx)
            parser = str
        read = [parser(word) for word in words]
        return read if several else read[0]


def _read_quickly(params: list[Any]) -> list[Any]:
    """Return parameters that have a reader of ours, where Typer has such readers."""
    for param in params:
        if hasattr(param, "get_runtime_param") and "get_runtime_param" not in param.__dict__:
            reader = _Reader(param)
            param.__dict__["get_runtime_param"] = lambda reader=reader: reader
    return params


class _Verb(TyperCommand):
    """A verb."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_quickly(_without_types(super().get_params(ctx)))

    def invoke(self, ctx: Any) -> Any:
        if isinstance(ctx.params.get("pool"), ClusterUrl):
            from engram.cli import over_nodes  # noqa: PLC0415 - a pool needs none of it

            return over_nodes.run(ctx)
        return super().invoke(ctx)


class _Verbs(TyperGroup):
    """The verbs; a reader that stops reading what they print has seen enough: that is no error."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_quickly(_without_types(super().get_params(ctx)))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # which Typer would end with 1
            give_up(sys.stdout)
            raise typer.Exit from None


class _AllVerbs(_Verbs):
    """The verbs of the command line, each loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._load(*VERBS)
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in VERBS:
            self._load(cmd_name)
        else:  # the refusal names the verbs that are like it
            self._load(*VERBS)
        return super().get_command(ctx, cmd_name)

    def _load(self, *verbs: str) -> None:
        """Import the modules of verbs that are not here yet."""
        missing = [verb for verb in verbs if verb not in self.commands]
        if missing:
            for verb in missing:
                importlib.import_module(module_of(verb))
            arrange()
            self.commands = get_group(app).commands


app = typer.Typer(
    name="engram",
    cls=_AllVerbs,
    help="Arrays that outlive their program: a pool in memory that every process maps.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

SECTIONS = {
    "Look": ("ls", "tree", "info", "query", "watch", "stats", "plot", "serve"),
    "Values in and out": ("put", "get", "import", "export"),
    "Files": ("mount", "unmount", "run", "trace", "stage", "job"),
    "Names": ("mv", "rm", "protect"),
    "Sharing": ("share", "unshare", "publish", "unpublish"),
    "Active objects": ("active", "gc"),
    "Clusters": ("cluster",),
    "Pools": (
        "create",
        "destroy",
        "ns",
        "index",
        "reindex",
        "verify",
        "backup",
        "adopt",
        "compact",
        "upgrade",
        "doctor",
        "demo",
    ),
}
"""The verbs by section, in the order in which help lists them."""

VERBS = tuple(verb for verbs in SECTIONS.values() for verb in verbs)
"""The verbs, in the order in which help lists them."""

_MODULES = {
    **dict.fromkeys(("put", "get"), "values"),
    "import": "files",
    **dict.fromkeys(("mv", "rm", "protect"), "names"),
    **dict.fromkeys(("unshare", "publish", "unpublish"), "share"),
    "gc": "active",
    "unmount": "mount",
    "run": "running",  # `run` is the command line's own
    **dict.fromkeys(("create", "destroy", "adopt", "verify"), "pools"),
    "reindex": "index",
    **dict.fromkeys(("backup", "compact", "upgrade"), "housekeeping"),
}
"""The modules that add the verbs to `app`, where they have other names than the verbs."""


def module_of(verb: str) -> str:
    """Return the name of the module that adds a verb to `app`."""
    return f"engram.cli.{_MODULES.get(verb, verb)}"


def group_of_verbs(name: str, what: str, epilog: str) -> typer.Typer:
    """Give a verb that has verbs of its own; `dress` it when they are added."""
    made = typer.Typer(
        name=name,
        cls=_Verbs,
        help=what,
        epilog=epilog,
        no_args_is_help=True,
        rich_markup_mode="rich",
    )
    app.add_typer(made, rich_help_panel=_section_of(name))
    return made


def _section_of(verb: str) -> str:
    return next(name for name, verbs in SECTIONS.items() if verb in verbs)


def dress(verbs: typer.Typer) -> None:
    """Give a verb's own verbs the look of all."""
    for command in verbs.registered_commands:
        command.cls = _Verb
        command.help = _help(inspect.getdoc(command.callback) or "")


def file_path(word: str) -> Path:
    """Return a path in the filesystem; none is meant by an empty word, not this folder."""
    if not word:
        message = "the path is empty; perhaps a variable of the shell is not set"
        raise typer.BadParameter(message)
    if word == output.STDIO:
        message = "- is stdin or stdout, which only put and get take; a file of that name is ./-"
        raise typer.BadParameter(message)
    if cluster_of(word) is not None:
        message = f"{word} is a cluster, and no path in the filesystem: name a file or a folder"
        raise typer.BadParameter(message)
    return Path(word)


def pool_place(word: str) -> Any:
    """Return where a pool is, a path or a URL of one; or which cluster is meant."""
    if is_url(word):
        if not word.removeprefix(f"{PROTOCOL}:").strip("/:"):
            message = f"{word} names no cluster and no pool: such are engram://job, /dev/shm/pool"
            raise typer.BadParameter(message)
        return cluster_of(word) or Path(stripped(word))
    return file_path(word)


PoolArgument = Annotated[
    Path,
    typer.Argument(
        metavar="POOL",
        help="The pool's folder; or a cluster, engram://NAME.",
        autocompletion=completion.pools,
        parser=pool_place,  # what opening it says is better than what Typer does
    ),
]
"""Of a cluster the verb is not called: `over_nodes` does what it does there, or refuses it."""
PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A path in the pool, such as run-17/T.",
        autocompletion=completion.members,
    ),
]
WhereArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A group or object in the pool; the root if none.",
        autocompletion=completion.members,
    ),
]
IndexOption = Annotated[
    str | None,
    typer.Option(
        "--index", metavar="MODE", help="When it is indexed, if not as above: sync, async or none."
    ),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="The namespace to look in.",
        autocompletion=completion.namespaces,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

LEFT_OUT = 4
"""The exit code of what was done, and something was left out, as told."""


def examples(*lines: str) -> str:
    """Return a verb's epilog: its examples, one a line."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  {escape(line)}" for line in lines)])


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Arrays that outlive their program: a pool in memory that every process maps."""
    _starting.begun()  # the verb's module is loaded
    if version:
        typer.echo(f"engram {engram.__version__}")
        raise typer.Exit


@contextlib.contextmanager
def opened(pool: Path, namespace: str, mode: str = "r") -> Iterator[tuple[Pool, Namespace | Pool]]:
    """Open a pool, and give it with the namespace whose members are meant; close it after."""
    with engram.open(pool, mode=mode) as handle:
        if namespace == "default":
            yield handle, handle
        elif namespace in handle.namespaces:
            yield handle, handle.namespaces[namespace]
        else:
            names = ", ".join(handle.namespaces)
            message = f"no namespace {namespace!r} in {pool}; there are: {names}"
            raise NotFoundError(message)


def arrange() -> None:
    """Put the verbs that were added so far into the order, and the sections, of help."""

    def name(command: CommandInfo) -> str:
        return command.name or str(getattr(command.callback, "__name__", ""))

    dress(app)
    for command in app.registered_commands:
        command.rich_help_panel = _section_of(name(command))
    app.registered_commands.sort(key=lambda command: VERBS.index(name(command)))


def _help(doc: str) -> str:
    """Return a docstring as help: a paragraph a line, so that the terminal's width breaks it."""
    return "\n\n".join(" ".join(part.split()) for part in escape(doc).split("\n\n"))


def clean(path: str) -> str:
    """Return a path as the package wants it: ``""`` for the root, no slash at either end.

    Raises
    ------
    ArgumentError
        If it is empty: the root is ``/``, and what was meant was perhaps a variable.

    """
    if not path:
        message = "the path in the pool is empty: name a member, or / for the root"
        raise ArgumentError(message)
    return path.strip("/")


def object_path(path: str) -> str:
    """Return a path that names something below the root."""
    name = clean(path)
    if not name:
        message = f"{path!r} is the root; name an object in the pool, such as run-17/T"
        raise ArgumentError(message)
    return name


def bits_of(octal: str) -> int:
    """Return the POSIX mode that octal digits name."""
    digits = octal.removeprefix("0o")
    if not digits or set(digits) - set("01234567"):
        raise ArgumentError(f"mode {octal!r} is not octal: give three digits such as 770 or 700")
    return int(digits, 8)


def group_of(group: str | None) -> str | int | None:
    """Return a Unix group's name or number."""
    return int(group) if group and group.isdecimal() else group


def mode_of(mode: str | None) -> IndexMode | None:
    """Refuse what is no mode of the index."""
    return check_mode(cast("IndexMode | None", mode))
