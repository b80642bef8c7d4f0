"""Downloads from the web page: what a file has, what it leaves behind, and what stops it."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from engram.errors import ArgumentError, InvalidNameError
from engram.web import downloads, levels, picks
from engram.web.answers import Ask
from engram.web.refusal import RefusedError
from engram.web.served import Shelf
from engram.web.sources import Source
from engram.web.working import Work
from support import PATIENCE, small_tmpfs
from web_client import INDEX, Browser, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import engram


@pytest.fixture
def browser(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    with served(monkeypatch, tmp_path, pool.path) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which downloads are made."""
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.mark.parametrize("form", ["netcdf", "npy", "csv", "png"])
def test_no_file_of_a_download_stays_behind(
    pool: engram.Pool, browser: Browser, folder: Path, form: str
) -> None:
    if form == "netcdf":
        pytest.importorskip("h5py", reason="h5py is not installed")
    pool.create_array("a", data=np.zeros((4, 5)), dims=["y", "x"])
    path = f"/api/p/0/download?path=a&index=:,:&as={form}"
    whole = browser.ask(path, headers=browser.known())
    for asked in ("bytes=abc", "bytes=999999-", "chars=0-1", "bytes=0-0,3-4"):
        answer = browser.ask(path, headers=browser.known() | {"Range": asked})
        assert (answer.status, len(answer.body)) == (200, len(whole.body))
        assert int(answer.headers["content-length"]) == len(answer.body)
    assert browser.get("api/p/0/download", path="a", index="9,:", as_=form).status == 400
    assert list(folder.iterdir()) == []


def test_downloads_that_nobody_takes_are_bounded(
    pool: engram.Pool, browser: Browser, folder: Path
) -> None:
    pool.create_array("large", shape=(32 << 20,), dtype="i1")
    words = {"Host": f"{browser.host}:{browser.port}", **browser.known()}
    head = "".join(f"{name}: {word}\r\n" for name, word in words.items())
    with contextlib.ExitStack() as stack:
        for _ in range(downloads.DOWNLOADS_MOST):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(PATIENCE)
            one.connect((browser.host, browser.port))
            one.sendall(f"GET /api/p/0/download?path=large&as=npy HTTP/1.1\r\n{head}\r\n".encode())
            assert one.recv(12) == b"HTTP/1.1 200"
        assert list(folder.iterdir()) == []
        answer = browser.get("api/p/0/download", path="large", as_="npy")
        assert (answer.status, answer.json["error"]) == (503, "TooMany")
        assert str(downloads.DOWNLOADS_MOST) in answer.json["message"]
    until = time.monotonic() + PATIENCE  # the server notices that they have gone
    while browser.get("api/p/0/download", path="large", as_="npy").status != 200:
        assert time.monotonic() < until
    assert not downloads.Download._all or len(downloads.Download._all) < downloads.DOWNLOADS_MOST


@pytest.mark.filterwarnings("error")
def test_files_of_numpy_are_made_by_tiles(
    pool: engram.Pool, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "TILE", 1 << 6)
    record = np.array([(1, 2.5, b"x")] * 30, [("a", ">i2"), ("b", "f8"), ("c", "S3")])
    arrays: tuple[tuple[str, Any, tuple[int, ...] | None, str], ...] = (
        ("cube", np.arange(1000).reshape(10, 10, 10), (3, 4, 10), "1:,::3,2"),
        ("times", np.arange(300).astype("M8[ns]").reshape(30, 10), None, "::7,3:"),
        ("big", np.arange(300, dtype=">f4"), (16,), "5:290:9"),
        ("record", record, None, ":"),
        ("named", np.zeros(3, [("\u202e", "f4")]), None, ":"),
        ("one", np.float32(3), None, ""),
        ("none", np.zeros((0, 3)), None, ":,:"),
    )
    for name, values, chunks, index in arrays:
        array = pool.create_array(name, data=values, chunks=chunks)
        answer = browser.get("api/p/0/download", path=name, index=index, as_="npy")
        assert answer.status == 200, answer.body
        source = Source(array)
        pick = picks.read(index, source.shape) if index else picks.Pick(())
        found, expected = np.load(io.BytesIO(answer.body)), values[pick.key(*pick.ranges)]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_coordinates_count_in_a_download(
    pool: engram.Pool, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    monkeypatch.setattr(downloads, "BYTES_MOST", 8000)
    pool.create_array("g/x", data=np.arange(1000.0), dims=["x"])
    pool.create_array("g/v", data=np.zeros(1000, "i1"), dims=["x"])
    answer = browser.get("api/p/0/download", path="g/v", as_="netcdf")
    assert (answer.status, answer.json["error"]) == (413, "TooLarge")
    assert "9,000 bytes" in answer.json["message"]
    assert browser.get("api/p/0/download", path="g/v", index=":800", as_="netcdf").status == 200


@pytest.mark.parametrize("dim", ["..", ".", "", "a/b", "x" * 300])
def test_dimensions_that_no_array_can_be_called(
    pool: engram.Pool, browser: Browser, dim: str
) -> None:
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    try:
        pool.create_array("g/v", data=np.zeros((2, 3)), dims=[dim, "x"])
    except (ArgumentError, InvalidNameError):
        pytest.skip("no dimension can be called so")
    assert browser.of("object", path="g/v")["dims"] == [dim, "x"]
    assert browser.of("coordinate", path="g/v", dim=dim)["index"] is True
    assert browser.get("api/p/0/download", path="g/v", as_="netcdf").status == 200


def test_netcdf_files_have_so_many_dimensions(pool: engram.Pool, browser: Browser) -> None:
    pool.create_array("many", data=np.zeros((1,) * 62 + (2, 2)))
    answer = browser.get("api/p/0/download", path="many", as_="netcdf")
    assert (answer.status, answer.json["error"]) == (400, "ArgumentError")
    assert "64 dimensions" in answer.json["message"]
    assert "32" in answer.json["message"]


# What ends before its file is whole

_APART = """
import sys
from pathlib import Path
from engram.web import app, serve
app.PAGE = Path(sys.argv[1])
serve(sys.argv[2], port=0, ready=lambda url: print(url, flush=True))
"""


@contextmanager
def served_apart(
    pool: engram.Pool, page: Path, folder: Path
) -> Iterator[tuple[Browser, subprocess.Popen[str]]]:
    """Serve a pool from a process of its own, which makes downloads in a folder."""
    (page / "index.html").write_text(INDEX)
    words = [sys.executable, "-c", _APART, str(page), pool.path]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield Browser(process.stdout.readline().strip()), process
        finally:
            process.kill()


def test_where_there_is_no_room_a_download_is_refused_and_the_server_goes_on(
    pool: engram.Pool, tmp_path: Path
) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed")
    pool["large"] = np.random.default_rng(1).integers(0, 1 << 60, 1 << 19)
    pool["small"] = [1, 2]
    with small_tmpfs(1) as folder, served_apart(pool, tmp_path, folder) as (browser, process):
        for form in ("npy", "csv", "netcdf"):
            answer = browser.get("api/p/0/download", path="large", as_=form)
            assert (answer.status, answer.json["error"]) == (507, "NoRoom"), form
            assert str(folder) in answer.json["message"]
            assert "TMPDIR" in answer.json["remedy"]
            assert list(folder.iterdir()) == []
            assert browser.get("api/p/0/download", path="small", as_=form).status == 200
        assert process.poll() is None


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_ends_leaves_no_file_of_a_download_behind(
    pool: engram.Pool, tmp_path: Path, folder: Path, end: signal.Signals
) -> None:
    pool["a"] = np.arange(900_000.0)
    page = tmp_path / "page"
    page.mkdir()
    with (
        served_apart(pool, page, folder) as (browser, process),
        closing(http.client.HTTPConnection(browser.host, browser.port, PATIENCE)) as asking,
    ):
        asking.request("GET", "/api/p/0/download?path=a&as=csv", headers=browser.known())
        until = time.monotonic() + PATIENCE
        while not list(folder.glob("*/made")):
            assert time.monotonic() < until
            time.sleep(0.001)
        process.send_signal(end)
        assert asking.getresponse().status == 503  # it had not been made as a whole
        assert process.wait(PATIENCE) == (-end if end == signal.SIGTERM else 0)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("form", ["netcdf", "csv", "npy"])
def test_a_download_that_nobody_waits_for_is_made_no_further(
    pool: engram.Pool, folder: Path, form: str
) -> None:
    if form == "netcdf":
        pytest.importorskip("h5py", reason="h5py is not installed")
    pool["a"] = np.arange(1000.0)
    shelf, work = Shelf([pool.path]), Work()
    work.is_dropped = True
    try:
        with pytest.raises(RefusedError, match="the browser has gone"):
            downloads.download(shelf["0"], Ask({"as": form, "path": "a"}, {}, shelf), work)
    finally:
        shelf.close()
    assert list(folder.iterdir()) == []
