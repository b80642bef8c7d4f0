"""The command line's `stats`: what is counted is what is there."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

import engram
from engram.cli import metrics
from engram.errors import CorruptError
from shell import example, in_terminal, piped, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
"""What an escape in a label of Prometheus' text format stands for."""


class Sample(NamedTuple):
    """A sample as Prometheus reads it."""

    family: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """Read Prometheus' text format, version 0.0.4, strictly: what it forbids is an assertion."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    before = ""
    for line in text.removesuffix("\n").split("\n"):
        if found := re.fullmatch(r"# TYPE ([a-z_:]+) (gauge|counter)", line):
            assert before.startswith(f"# HELP {found[1]} ")
            assert found[1] not in types, "the samples of a family stand together"
            assert (found[2] == "counter") == found[1].endswith("_total")
            types[found[1]] = found[2]
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r"([a-z_:]+)\{(.*)\} (\d+)", line)
            assert found is not None, line
            assert found[1] == list(types)[-1]
            pairs = re.findall(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)', found[2])
            assert ",".join(f'{name}="{value}"' for name, value in pairs) == found[2]
            labels = {
                name: re.sub(r'\\["\\n]', lambda escape: UNESCAPED[escape[0]], value)
                for name, value in pairs
            }
            yield Sample(found[1], labels, float(found[3]))
        before = line


def told(text: str, family: str, **labels: str) -> float:
    """Return the one value that a family has with these labels."""
    (value,) = [
        each.value
        for each in samples(text)
        if each.family == family and labels.items() <= each.labels.items()
    ]
    return value


def test_stats_counts_what_is_there(home: Path) -> None:
    path = example(home)
    found = json.loads(run("stats", path, "--json").out)
    assert (found["groups"], found["arrays"], found["blobs"]) == (3, 3, 1)
    assert found["attributes"] == 2
    by_dtype = {each["dtype"]: each for each in found["dtypes"]}
    assert set(by_dtype) == {"float32", "string", "blob"}
    assert by_dtype["float32"] == {"dtype": "float32", "objects": 2, "nbytes": 96}
    assert by_dtype["blob"]["nbytes"] == 5
    assert found["nbytes"] == sum(each["nbytes"] for each in found["dtypes"])
    assert [each["path"] for each in found["largest"]][:2] == [
        *("run-17/step-0400/T", "run-17/step-0500/T")
    ]


def test_stats_of_a_part_counts_it_alone(home: Path) -> None:
    path = example(home)
    found = json.loads(run("stats", path, "run-17/step-0400", "--json").out)
    assert (found["groups"], found["arrays"], found["attributes"]) == (1, 2, 2)
    assert "space" not in found
    found = json.loads(run("stats", path, "-n", "icesat", "--json").out)
    assert (found["groups"], found["arrays"]) == (0, 1)
    found = json.loads(run("stats", path, "log", "--json").out)
    assert (found["blobs"], found["nbytes"]) == (1, 5)


def test_stats_keeps_the_largest_in_order(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool, pool.batch():
        for i in (3, 1, 4, 15, 9, 2, 6):
            pool[f"g/{i}"] = np.zeros(i, "u1")
    found = json.loads(run("stats", home / "p", "--top", "3", "--json").out)
    assert [each["nbytes"] for each in found["largest"]] == [15, 9, 6]
    assert json.loads(run("stats", home / "p", "--top", "0", "--json").out)["largest"] == []


def test_stats_tells_of_space_devices_and_processes(home: Path) -> None:
    (home / "two").mkdir()
    with engram.create(home / "p", size="64 MiB", devices=[home / "two"]) as pool:
        pool["a"] = np.zeros(5 << 20, "u1")
        space = pool.space
        found = json.loads(run("stats", home / "p", "--json").out)
        assert found["space"]["used"] == space.used
        assert found["space"]["arena"] == space.arena
        assert [each["path"] for each in found["devices"]] == [
            str(home / "p"),
            *(str(device.path) for device in pool.devices[1:]),
        ]
        assert sum(each["nbytes"] for each in found["devices"]) == space.arena
        assert os.getpid() in [each["pid"] for each in found["processes"]]
        code, seen = in_terminal("stats", home / "p")
        assert code == 0
        for word in ("open in", f"{os.getpid()} (", "5 MiB", "uint8", "pending", "█"):
            assert word in seen
    assert "no other process" in in_terminal("stats", home / "p")[1]


def test_stats_of_nothing_is_zeros(home: Path) -> None:
    engram.create(home / "p", size="1 MiB").close()
    found = json.loads(run("stats", home / "p", "--json").out)
    assert (found["groups"], found["arrays"], found["nbytes"]) == (0, 0, 0)
    assert run("stats", home / "p").out.startswith("0 groups, 0 arrays, 0 blobs, 0 attributes")
    assert run("stats", home / "p", "nope").code == engram.NotFoundError.exit_code


def test_stats_tells_prometheus_what_is_there(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        for i in range(4):
            pool[f"g/{i}"] = np.zeros(1 << 20, "u1")
        pool["note"] = b"hello"
        pool.create_namespace("other", size="32 MiB")["x"] = np.zeros(3)
        kept = pool["g/3"].view()
        del pool["g/3"]
        ended = piped("stats", home / "p", "--prometheus")
        assert (ended.returncode, ended.stderr) == (0, b"")
        text = ended.stdout.decode()
        space = pool.space
        of_default = {"pool": str(home / "p"), "namespace": "default"}
        for state in ("used", "free", "pending"):
            value = told(text, "engram_pool_bytes", **of_default, state=state)
            assert value == getattr(space, state)
        assert space.used + space.free + space.pending == space.arena
        assert told(text, "engram_pool_size_bytes", **of_default) == space.size
        assert told(text, "engram_pool_size_bytes", namespace="other") == 32 << 20
        assert told(text, "engram_pool_members", **of_default) == 2
        objects = [each for each in samples(text) if each.family == "engram_pool_objects"]
        assert sum(o.value for o in objects if o.labels["namespace"] == "default") == 4
        assert told(text, "engram_pool_leases", **of_default, state="alive") == 1
        assert told(text, "engram_pool_views", **of_default) == 1
        assert told(text, "engram_pool_deleted_bytes", **of_default, state="viewed") == kept.nbytes
        assert told(text, "engram_pool_info", uuid=pool.uuid, durability=pool.durability) == 1
    text = run("stats", home / "p", "--prometheus").out
    assert told(text, "engram_pool_leases", **of_default, state="alive") == 0


def test_prometheus_reads_any_name_of_a_pool(home: Path) -> None:
    names = ['a"b', "a\nb", "a\\b", "a\\nb", '\\"', "ö} 1", "\t,x=1"]
    for name in names:
        engram.create(home / name, size="1 MiB").close()
        text = run("stats", home / name, "--prometheus").out
        assert {each.labels["pool"] for each in samples(text)} == {str(home / name)}


def test_prometheus_reads_a_name_that_is_no_text(home: Path) -> None:
    path = os.fsencode(home) + b"/\xff"
    with engram.create(os.fsdecode(path), size="1 MiB") as pool:
        text = metrics.text_of(pool)
    assert {each.labels["pool"] for each in samples(text)} == {f"{home}/\ufffd"}


@pytest.mark.parametrize("error", [engram.AccessError, CorruptError])
def test_prometheus_is_told_that_a_namespace_cannot_be_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    path = example(home)

    stats = engram.Namespace.stats

    def refused(namespace: engram.Namespace) -> object:
        if namespace.namespace == "icesat":
            message = "not to be read"
            raise error(message)
        return stats(namespace)

    monkeypatch.setattr(engram.Namespace, "stats", refused)
    text = run("stats", path, "--prometheus").out
    assert told(text, "engram_pool_readable", namespace="icesat") == 0
    assert told(text, "engram_pool_readable", namespace="default") == 1
    of_it = [each.family for each in samples(text) if each.labels.get("namespace") == "icesat"]
    assert of_it == ["engram_pool_readable"]


@pytest.mark.parametrize(
    "words", [["/"], ["run-17"], ["--json"], ["--top", "3"], ["-n", "default"]]
)
def test_prometheus_is_told_of_the_whole_pool(home: Path, words: list[str]) -> None:
    path = example(home)
    ended = run("stats", path, *words, "--prometheus")
    assert (ended.code, ended.out) == (engram.ArgumentError.exit_code, "")
    assert "leave out" in ended.err


def test_prometheus_is_told_nothing_of_a_pool_that_is_not_there(home: Path) -> None:
    ended = run("stats", home / "none", "--prometheus")
    assert (ended.code, ended.out) == (engram.NotFoundError.exit_code, "")
