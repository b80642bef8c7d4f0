"""The web page: what `engram serve` shows of pools and clusters in a browser.

::

    import engram.web

    server = engram.web.start("/dev/shm/run")     # in a thread of this process
    print(server.url)                             # with the token: keep it to yourself
    ...
    server.close()

`serve` does the same, and returns when it is interrupted. The page is for reading unless `write` is
given. It needs `engram[web]`: starlette and uvicorn. `import engram` loads nothing of this.
"""

from engram.web.server import Server, serve, start

__all__ = ["Server", "serve", "start"]
