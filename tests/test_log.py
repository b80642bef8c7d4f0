"""Logs, as libpmemlog has them: arrays of bytes that processes append to until they are killed."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import engram

APPENDER = """
import sys
import engram, numpy as np
with engram.open(sys.argv[1]) as pool:
    log, who = pool["log"], sys.argv[2]
    for number in range(1 << 30):
        line = f"{who} {number} {'x' * (number * 7919 % 9001)}\\n"
        log.append(np.frombuffer(line.encode(), "u1"))
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
"""
ROUNDS = 6
WRITERS = 3


def lines_of(log: engram.Array) -> list[tuple[str, int, int]]:
    """Give who wrote each line of a log, its number, and how long it is; none is torn."""
    text = bytes(log[...]).decode()
    assert text == "" or text.endswith("\n")
    lines = []
    for line in text.splitlines():
        who, number, rest = line.split(" ")
        assert rest == "x" * (int(number) * 7919 % 9001)
        lines.append((who, int(number), len(rest)))
    return lines


def test_what_killed_processes_append_is_whole_and_nothing_acknowledged_is_lost(
    home: Path,
) -> None:
    chosen = random.Random(8)  # noqa: S311 - not for secrets
    with engram.create(home / "pool", size="256 MiB", force=True) as pool:
        log = pool.create_array("log", shape=(0,), dtype="u1", chunks=(4096,))
        for attempt in range(ROUNDS):
            writers = {}
            for each in range(WRITERS):
                words = [sys.executable, "-c", APPENDER, str(home / "pool"), f"w{attempt}-{each}"]
                writers[f"w{attempt}-{each}"] = subprocess.Popen(
                    words, stdout=subprocess.PIPE, text=True
                )
            acknowledged = {}
            for who, writer in writers.items():
                assert writer.stdout is not None
                for _ in range(chosen.randrange(1, 60)):
                    acknowledged[who] = int(writer.stdout.readline())
            for writer in writers.values():
                os.kill(writer.pid, signal.SIGKILL)
            for who, writer in writers.items():
                assert writer.stdout is not None
                rest = writer.stdout.read().split("\n")[:-1]
                acknowledged[who] = max([acknowledged[who], *map(int, rest)])
                writer.wait()
                writer.stdout.close()
            written: dict[str, list[int]] = {}
            for who, number, _ in lines_of(log):
                written.setdefault(who, []).append(number)
            for who, last in acknowledged.items():
                assert written[who] == list(range(len(written[who])))
                assert len(written[who]) - 1 in {last, last + 1}
        assert len(written) == ROUNDS * WRITERS
        log.resize(0)
        assert lines_of(log) == []
        log.append(np.frombuffer(b"w 1 ", "u1"))
        assert bytes(log[...]) == b"w 1 "
    assert engram.verify(home / "pool").problems == []
