"""Spans and logs: what a program that listens is told, and that others pay for nothing."""

import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from engram import telemetry
from engram.active.errors import WorkerDiedError

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

from cluster.rig import rigged
from telemetry_work import Counter

_exporter = InMemorySpanExporter()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Listen to spans during a test."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    _exporter.clear()
    yield _exporter
    provider.shutdown()
    _exporter._stopped = False


def only(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def facts(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> trace.SpanContext:
    found: trace.SpanContext | None = span.context
    assert found is not None
    return found


# Off


def test_a_program_that_listens_to_nothing_loads_nothing(home: Path) -> None:
    code = (
        "import sys, engram\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True) as pool:\n"
        "    pool['T'] = b'x' * 256\n"
        "    assert pool.query('exists(step)').count() == 0\n"
        "    from engram import telemetry\n"
        "    def never(): raise AssertionError\n"
        "    one, other = telemetry.span('a', never), telemetry.span('b', never)\n"
        "    assert one is other is telemetry.SILENT\n"
        "    assert telemetry.here() == ''\n"
        "    telemetry.Log('engram').warning('not told')\n"
        "print([name for name in ('logging', 'opentelemetry') if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(home / "p")], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_records_that_nobody_asked_for_are_not_printed() -> None:
    code = (
        "import logging\n"
        "from engram import telemetry\n"
        "telemetry.Log('engram.query').warning('not told')\n"
        "logging.basicConfig(format='%(name)s: %(message)s')\n"
        "telemetry.Log('engram.query').warning('told %d', 7)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "engram.query: told 7\n"


def test_without_opentelemetry_all_spans_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    with telemetry.span("engram.a", dict) as span:
        span.set(dict)
    span.end()
    assert span is telemetry.span("engram.b", dict) is telemetry.SILENT


def test_with_the_api_alone_no_span_is_begun(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages import the API for themselves: that nobody set a provider costs a call nothing."""
    begun: list[str] = []

    class Tracer(trace.NoOpTracer):
        def start_span(self, name: str, *args: Any, **kwargs: Any) -> trace.Span:
            begun.append(name)
            return super().start_span(name, *args, **kwargs)

    monkeypatch.setattr(trace.ProxyTracerProvider, "get_tracer", lambda *_, **__: Tracer())
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        counter = Counter()
        counter.make_persistent(backend_id=pool)
        counter.add(1)
        assert pool.query("exists(step)").count() == 0
    assert begun == []
    assert telemetry.span("engram.a", dict) is telemetry.SILENT


# Spans


def test_a_span_tells_of_an_import(spans: InMemorySpanExporter, home: Path) -> None:
    np.save(home / "T.npy", np.arange(6.0))
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        engram.import_file(home / "T.npy", pool)
        told = facts(only(spans, "engram.import"))
        assert told["engram.path"] == str(home / "T.npy")
        assert told["engram.pool"] == str(home / "p")
        assert (told["engram.format"], told["engram.arrays"]) == ("NPY", 1)
        assert told["engram.bytes"] == 48
        engram.export_file(pool["T"], home / "U.npy")
        told = facts(only(spans, "engram.export"))
        assert (told["engram.path"], told["engram.bytes"]) == (str(home / "U.npy"), 48)


def test_a_span_of_what_fails_says_so(spans: InMemorySpanExporter, home: Path) -> None:
    (home / "T.npy").write_bytes(b"no file of numpy's")
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        with pytest.raises(engram.FormatError):
            engram.import_file(home / "T.npy", pool)
        with pytest.raises(engram.QueryError):
            len(pool.query("a ="))
        with pytest.raises(ZeroDivisionError):
            Counter().fail()
    span = only(spans, "engram.import")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "FormatError" in str(span.status.description)
    assert [event.name for event in span.events] == ["exception"]


def test_files_that_are_imported_together_are_children_of_one_span(
    spans: InMemorySpanExporter, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.save(home / "T.npy", np.arange(6.0))
    (home / "bad.npy").write_bytes(b"no file of numpy's")
    with (
        engram.create(home / "p", size="16 MiB", force=True) as pool,
        caplog.at_level("INFO", "engram"),
    ):
        engram.import_files([home / "T.npy", home / "bad.npy"], pool)
    whole = only(spans, "engram.import.files")
    assert (facts(whole)["engram.files"], facts(whole)["engram.failures"]) == (1, 1)
    parts = [span for span in spans.get_finished_spans() if span.name == "engram.import"]
    assert [span.parent and span.parent.span_id for span in parts] == [context(whole).span_id] * 2
    assert [span.status.is_ok for span in parts] == [True, False]
    levels = {record.levelname for record in caplog.records if record.name == "engram.import"}
    assert levels == {"INFO", "WARNING"}


def test_a_span_tells_of_a_query_when_it_is_looked_up(
    spans: InMemorySpanExporter, home: Path
) -> None:
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        pool.create_array("T", data=[1.0], attrs={"step": 1})
        result = pool.query("step = 1")
        assert not spans.get_finished_spans()
        assert len(result) == len(result.paths()) == 1
        told = facts(only(spans, "engram.query"))
    assert (told["db.query.text"], told["db.response.returned_rows"]) == ("step = 1", 1)


def test_a_call_of_a_method_is_the_parent_of_what_it_calls(
    spans: InMemorySpanExporter, home: Path
) -> None:
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        counter = Counter()
        counter.make_persistent("c", pool)
        with pytest.raises(ZeroDivisionError):
            counter.fail()
        assert not only(spans, "engram.active.call").status.is_ok
        spans.clear()
        assert counter.add_twice(2) == 4
    *inner, outer = spans.get_finished_spans()
    assert facts(outer)["engram.active.method"] == "add_twice"
    assert facts(outer)["engram.active.class"] == "Counter"
    assert facts(outer)["engram.active.location"] == str(home / "p")
    assert [facts(span)["engram.active.method"] for span in inner] == ["add", "add"]
    assert {span.parent and span.parent.span_id for span in inner} == {context(outer).span_id}


def test_a_call_in_a_worker_is_a_child_of_who_submitted_it(
    spans: InMemorySpanExporter, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANS", str(home / "spans"))
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        counter = Counter()
        counter.make_persistent("c", pool)
        with engram.active.Executor(workers=1) as workers, telemetry.span("submits", dict):
            assert counter.add.submit(1).result() == 1
            (worker,) = workers.pids
    submits = context(only(spans, "submits"))
    (line,) = (home / "spans").read_text(encoding="utf-8").splitlines()
    told = ["engram.active.call", worker, submits.trace_id, submits.span_id]
    assert line == " ".join(map(str, told))


def test_a_call_on_another_node_knows_its_caller(
    spans: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(tmp_path, secure=True) as rig:
        rig.serve(0, workers=1)
        rig.serve(1, workers=1)
        cluster = rig.open(0)
        (there,) = (each for each in cluster.members if each.node != cluster.node)
        counter = Counter()
        counter.make_persistent(backend_id=there)
        counter.seen()  # the worker imports OpenTelemetry, and knows of a caller from then on
        spans.clear()
        with telemetry.span("outer", dict):
            seen = [counter.seen(), counter.seen.submit().result()]
    outer, call = context(only(spans, "outer")), only(spans, "engram.active.call")
    assert seen == [(outer.trace_id, context(call).span_id), (outer.trace_id, outer.span_id)]
    assert facts(call)["engram.active.location"] == f"engram://job/{there.node}"


@pytest.mark.parametrize("said", ["", "00-1-2-3", "no parent"])
def test_what_names_no_parent_is_none(spans: InMemorySpanExporter, said: str) -> None:
    with telemetry.within(said), telemetry.span("engram.a", dict):
        pass
    assert only(spans, "engram.a").parent is None


def test_no_failing_attribute_makes_an_operation_fail(spans: InMemorySpanExporter) -> None:
    with telemetry.span("engram.a", lambda: {"a": str(1 // 0)}):
        pass
    assert not facts(only(spans, "engram.a"))


def test_spans_tell_of_stages(
    spans: InMemorySpanExporter, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / "in").mkdir()
    (home / "in" / "T").write_bytes(b"x" * 100)
    with (
        engram.create(home / "p", size="64 MiB", force=True) as pool,
        caplog.at_level("INFO", "engram.stage"),
    ):
        engram.stage.bring_in(pool, {str(home / "in"): "in"}, name="a")
        engram.stage.bring_out(pool, {"in": home / "out"})
        with engram.stage.resume(pool, "a"):
            pass
        with pytest.raises(engram.ArgumentError):
            engram.stage.bring_in(pool, {str(home): "all"})
    whole = {"engram.files": 1, "engram.bytes": 100, "engram.whole": True}
    for name in ("engram.stage.out", "engram.stage.resume"):
        assert facts(only(spans, name)).items() >= whole.items()
    done, refused = (s for s in spans.get_finished_spans() if s.name == "engram.stage.in")
    assert facts(done).items() >= whole.items()
    assert facts(done)["engram.stage.name"] == "a"
    assert facts(done)["engram.stage.paths"] == (f"{home / 'in'}: in",)
    assert (done.status.is_ok, refused.status.is_ok) == (True, False)
    assert sum("is whole: 1 files, 100 bytes" in said for said in caplog.messages) == 3


# Logs


def test_logs_tell_of_pools_queries_and_files(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.save(home / "T.npy", np.arange(6.0))
    place = home / "p"
    with caplog.at_level("DEBUG", "engram"):
        with engram.create(place, size="16 MiB", force=True) as pool:
            engram.import_file(home / "T.npy", pool)
            engram.export_file(pool["T"], home / "U.npy")
            len(pool.query("step = 1"))
        pool.close()
        engram.open(place, "r").close()
        engram.destroy(place)
    told = [(r.name, r.levelname, r.getMessage().partition(" in 0.")[0]) for r in caplog.records]
    assert told == [
        ("engram.pool", "DEBUG", f"{place} created: 16 MiB"),
        ("engram.import", "INFO", f"{home}/T.npy (NPY) into /: 1 arrays, 48 bytes"),
        ("engram.export", "INFO", f"/T to {home}/U.npy (NPY): 1 arrays, 48 bytes"),
        ("engram.query", "DEBUG", f"oids of 'step = 1' in {place}: 0"),
        ("engram.pool", "DEBUG", f"{place} closed"),
        ("engram.pool", "DEBUG", f"{place} opened, mode r"),
        ("engram.pool", "DEBUG", f"{place} closed"),
        ("engram.pool", "INFO", f"{place} destroyed"),
    ]


def test_a_worker_that_died_is_warned_of(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        counter = Counter()
        counter.make_persistent("c", pool)
        with (
            caplog.at_level(logging.WARNING, "engram.active"),
            engram.active.Executor(workers=1),
            pytest.raises(WorkerDiedError) as died,
        ):
            counter.die.submit().result()
    assert str(died.value) in caplog.messages


def test_a_log_holds_nothing_that_a_file_of_text_cannot(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="engram.try"):
        telemetry.Log("engram.try").info("%s and %d", "a\udcff\nb", 7)
    (record,) = caplog.records
    assert record.getMessage() == r"a\udcff\nb and 7"
    assert record.filename == Path(__file__).name
