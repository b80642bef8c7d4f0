"""`engram serve`: pools and clusters as a page in a browser."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - read by Typer
from typing import Annotated, Any

import typer

from engram.cli import completion, terminal
from engram.cli.app import NamespaceOption, app, examples, file_path, pool_place

PlacesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="POOL",
        help="Folders of pools; or clusters, engram://NAME.",
        autocompletion=completion.pools,
        parser=pool_place,
    ),
]


def _file(name: str, what: str) -> Any:
    return typer.Option(name, metavar="FILE", help=what, parser=file_path)


@app.command(
    epilog=examples(
        "engram serve /dev/shm/run",
        "engram serve /dev/shm/run /scratch/old engram://job --port 9000 --open",
        "engram serve /dev/shm/run --prefix /proxy/8765 --allow-host hub.org",
    )
)
def serve(
    pools: PlacesArgument,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 is any free one.")
    ] = 8765,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="The address; others than loopback need TLS."),
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Let the page rename, delete and annotate.")
    ] = False,
    prefix: Annotated[
        str, typer.Option(metavar="PATH", help="Where a proxy shows the page, such as /engram.")
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name of this server; may be repeated."),
    ] = None,
    certificate: Annotated[
        Path | None, _file("--certificate", "The server's certificate (PEM).")
    ] = None,
    key: Annotated[Path | None, _file("--key", "Its key (PEM).")] = None,
    password_file: Annotated[
        Path | None, _file("--password-file", "A file whose first line is the password.")
    ] = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Show pools and clusters in a browser, until Ctrl-C.

    It prints the address of the page, with a token that opens it. docs/guide/serve.md tells more.
    """
    from engram import web  # noqa: PLC0415 - a shell that completes words needs none of it

    web.serve(
        *(str(each) for each in pools),
        ready=_tell,
        open_browser=open_,
        port=port,
        host=host,
        write=write,
        prefix=prefix,
        allow_hosts=allow_host or (),
        certificate=certificate,
        key=key,
        password_file=password_file,
        namespace=namespace,
    )


def _tell(url: str) -> None:
    """Print where the page is; who reads a pipe has it at once."""
    terminal.print_lines([url])
    sys.stdout.flush()
    terminal.note("whoever has this address can look into what is served; Ctrl-C ends it")
