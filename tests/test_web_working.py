"""Work on pools for the web page: how much at once, how long, and for whom."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from engram.web import working
from engram.web.refusal import RefusedError
from support import PATIENCE


async def test_so_many_requests_wait_and_no_more() -> None:
    crew = working.Crew(threads=1, waiting=2)
    go = threading.Event()
    waiting = [asyncio.ensure_future(crew.do(lambda _: go.wait(PATIENCE))) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RefusedError) as refused:
        await crew.do(lambda _: None)
    assert refused.value.status == 503
    go.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await crew.do(lambda _: 7) == 7
    crew.close()


async def test_work_that_nobody_waits_for_ends() -> None:
    crew = working.Crew(threads=1)
    begun = threading.Event()

    def act(work: working.Work) -> None:
        begun.set()
        while True:
            work.go_on()
            time.sleep(0.001)

    async def gone() -> None:
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, PATIENCE)

    with pytest.raises(RefusedError, match="gone"):
        await crew.do(act, gone)
    crew.close()


def test_work_has_its_time() -> None:
    work = working.Work(patience=-1.0)
    with pytest.raises(RefusedError, match="takes more than") as refused:
        work.go_on()
    assert refused.value.status == 503
    assert refused.value.remedy


async def test_what_waits_is_not_begun_once_its_browser_has_gone() -> None:
    crew = working.Crew(threads=1)
    go = threading.Event()
    begun: list[working.Work] = []
    first = asyncio.ensure_future(crew.do(lambda _: go.wait(PATIENCE)))
    await asyncio.sleep(0)

    async def gone() -> None:
        pass

    waiting = asyncio.ensure_future(crew.do(begun.append, gone))
    await asyncio.sleep(0.05)  # it waits behind the first, and nobody waits for it
    go.set()
    with pytest.raises(RefusedError, match="gone"):
        await waiting
    assert await first is True
    assert begun == []
    crew.close()


async def test_a_crew_that_closes_has_ended_all_work() -> None:
    crew = working.Crew(threads=1)
    begun, ended = threading.Event(), threading.Event()

    def act(work: working.Work) -> None:
        begun.set()
        try:
            while True:
                work.go_on()
                time.sleep(0.001)
        finally:
            ended.set()

    done = asyncio.ensure_future(crew.do(act))
    await asyncio.to_thread(begun.wait, PATIENCE)
    crew.close()
    assert ended.is_set()
    with pytest.raises(RefusedError, match="the server ends"):
        await done
