"""normscope serve: every run in a folder as pages that follow them, for a browser on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from normscope.cli.option_groups import argument, option
from normscope.cli.options import OpenFlag
from normscope.cli.output import open_page
from normscope.words import printable

EXAMPLES = ("normscope serve run.db --open", "normscope serve runs/ --port 8700")
PORT = 8700


def serve(
    source: Annotated[Path, argument("RUN", "A run file, or a folder with run files and sweeps.")] = Path(),
    port: Annotated[
        int | None,
        option("--port", "N", f"Port to listen on. [default: {PORT}, or a free one if it is taken]"),
    ] = None,
    open_: OpenFlag = False,
) -> None:
    """Show runs in the browser while they train.

    One page lists every run in a folder; each run has the page that `report` writes, which changes as rows
    arrive. The server answers only to this machine and only to the address that it prints. It reads the run
    files and writes nothing. On another machine: ssh -L 8700:localhost:8700 HOST. Stop with Ctrl-C.
    """
    from normscope.views.serving.served_pages import open_server

    server, found = open_server(source, PORT if port is None else port, port is None)
    with server:
        print(f"{found} at {printable(server.address)} (Ctrl-C stops)", flush=True)
        if open_:
            open_page(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped; nothing was written")
