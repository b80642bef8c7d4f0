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


class _Shown:
    """What has a help and an epilog, which are made markup when they are shown.

    Only rich can escape what would be markup in them, and a verb that does its work needs no rich.
    """

    _plain_help: str | None = None
    _examples: str | None = None

    @property
    def help(self) -> str | None:
        return _escaped(self._plain_help)

    @help.setter  # noqa: A003 - Typer calls it so
    def help(self, text: str | None) -> None:
        self._plain_help = text

    @property
    def epilog(self) -> str | None:
        return self._examples and f"[bold]Examples[/bold]\n\n{_escaped(self._examples)}"

    @epilog.setter
    def epilog(self, text: str | None) -> None:
        self._examples = text


def _escaped(text: str | None) -> str | None:
    """Return text as markup that shows as the text."""
    if text is None:
        return None
    from rich.markup import escape  # noqa: PLC0415 - for help alone

    return "\n".join(map(escape, text.split("\n")))


class _Verb(_Shown, TyperCommand):
    """A verb."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_quickly(_without_types(super().get_params(ctx)))

    def invoke(self, ctx: Any) -> Any:
        if isinstance(ctx.params.get("pool"), ClusterUrl):
            from engram.cli import over_nodes  # noqa: PLC0415 - a pool needs none of it

            return over_nodes.run(ctx)
        return super().invoke(ctx)


class _Verbs(_Shown, TyperGroup):
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
    """The verbs of the command line, each loaded when it is asked for.

    Where verbs are listed, in help and to a shell that completes one, each is but its name and its
    line of `SECTIONS`.
    """

    _lists = False
    """Whether verbs are being listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(VERBS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        self._lists = True
        try:
            yield
        finally:
            self._lists = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._lists and cmd_name in VERBS:
            section = _section_of(cmd_name)
            line = SECTIONS[section][cmd_name]
            return _Verb(cmd_name, help=line, rich_help_panel=section)
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
    "Look": {
        "ls": "List what is in a group.",
        "tree": "Show a group as a tree, with dtype, shape, dimensions and bytes of what is in it.",
        "info": (
            "Show a pool, or a group, array or blob in it: what it is, attributes, values, a "
            "drawing."
        ),
        "query": "Find objects by their attributes, names and built-in fields.",
        "dump": (
            "Write all that describes a namespace, a group or a whole pool, as sorted text with "
            "sums."
        ),
        "diff": "Say what differs between two pools, two groups of pools, or dumps of such.",
        "watch": "Print the path of each object that a query finds, as it comes, from any process.",
        "stats": (
            "Count what is in a pool or a group: objects, attributes, bytes by dtype, space, "
            "processes."
        ),
        "plot": "Draw an array: a line, an image, or a map where it has latitudes and longitudes.",
        "serve": "Show pools and clusters in a browser, until Ctrl-C.",
    },
    "Values in and out": {
        "put": "Store an array from a NumPy file, or any bytes as a blob.",
        "get": "Write an array as a NumPy file, or a blob's bytes.",
        "import": "Import files of scientific formats: each as a whole, or nothing of it.",
        "export": "Export a group or an object as a file: all of it, or nothing.",
        "attr": (
            "List the attributes of an object or a group, or set and delete some in one commit."
        ),
    },
    "Files": {
        "mount": "Show a namespace as a folder: groups are folders, blobs and arrays are files.",
        "unmount": "Take a mount away; also one whose process was killed.",
        "run": "Run a program that finds files of a pool below a prefix, without the kernel.",
        "trace": (
            "Show what was done to the files of a mount: `engram mount ... --trace FILE` notes it."
        ),
        "stage": "Bring trees of files into a pool before a job, and safely back after it.",
        "job": (
            "Bring a job's files into memory, run its program, and bring its results safely out."
        ),
    },
    "Names": {
        "mv": "Rename a member, or move it: it stays the same object, with all that is below it.",
        "cp": "Copy members, groups with all in them: to another name, namespace or pool.",
        "rm": "Delete objects and groups: all of those named, or none.",
        "protect": (
            "Refuse changes of a member, and of all that is below a group: a hint against mistakes."
        ),
    },
    "Sharing": {
        "share": "Let those who share the namespace see what is private: its owner, and its group.",
        "unshare": "Keep to yourself what is shared: it becomes private, and yours alone to see.",
        "publish": "Let all read it whom the namespace's mode admits; nobody changes it any more.",
        "unpublish": "Withdraw what is published: it is shared again, and may be changed.",
    },
    "Active objects": {
        "active": "Active objects: list them and their classes, call a method, collect garbage.",
        "gc": "Delete the active objects that no alias leads to: as `engram active gc`.",
    },
    "Clusters": {
        "cluster": "A cluster: the pools of many nodes as one store, engram://NAME.",
    },
    "Pools": {
        "create": "Create a pool in a new folder.",
        "destroy": "Delete a pool, with all that is in it.",
        "ns": "List the namespaces of a pool; make, bound or remove one; say who may enter it.",
        "index": (
            "Index what waits in the queue of async indexing, and tell what the index is made of."
        ),
        "reindex": (
            "Index all objects below a group anew, those that were stored without an index too."
        ),
        "verify": "Walk all of a pool, and say whether it is whole.",
        "backup": "Copy a pool, as it is at one moment, while others write; the copy is a pool.",
        "adopt": "Say that a pool that was moved or restored is the one its devices belong to.",
        "compact": "Give back space that a pool does not need any more; nobody may have it open.",
        "upgrade": (
            "Make a pool of an earlier format one of this engram's; run it again if it was "
            "interrupted."
        ),
        "config": "Tell a compiler where the C library of this installation is.",
        "doctor": "Tell what a folder, or a pool's devices, give to a pool, and how to get more.",
        "demo": (
            "Run a small simulation in several processes, kill one, and check that nothing is lost."
        ),
    },
}
"""The verbs by section, in the order in which help lists them, each with the line that it shows.

The line is the first of what the verb says of itself: so help lists verbs that are not loaded.
"""

VERBS = tuple(verb for verbs in SECTIONS.values() for verb in verbs)
"""The verbs, in the order in which help lists them."""

_MODULES = {
    **dict.fromkeys(("put", "get"), "values"),
    "import": "files",
    **dict.fromkeys(("mv", "cp"), "copying"),
    **dict.fromkeys(("rm", "protect"), "names"),
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


def _pool(text: str) -> Any:
    """Return the argument that says where a pool is, with this line of help."""
    return typer.Argument(
        metavar="POOL",
        help=text,
        autocompletion=completion.pools,
        parser=pool_place,  # what opening it says is better than what Typer does
    )


PoolArgument = Annotated[Path, _pool("The pool's folder.")]
"""Of a cluster the verb is not called: `over_nodes` refuses it, and says what to do instead."""
PoolOrClusterArgument = Annotated[Path, _pool("The pool's folder; or a cluster, engram://NAME.")]
"""Of a cluster the verb is not called: `over_nodes` does what it does there."""
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
    """Return a verb's examples, one a line: its epilog, as `_Shown` takes it."""
    return "\n\n".join(f"  {line}" for line in lines)


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
    return "\n\n".join(" ".join(part.split()) for part in doc.split("\n\n"))


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
