"""A class whose module listens to spans, so that a worker that imports it tells of them."""

import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import engram


class Lines(SpanExporter):
    """Appends a line for each span to a file: its name, process, trace and parent."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ["SPANS"]).open("a", encoding="utf-8") as file:
            for span in spans:
                assert span.context is not None
                parent = 0 if span.parent is None else span.parent.span_id
                words = (span.name, os.getpid(), span.context.trace_id, parent)
                file.write(" ".join(map(str, words)) + "\n")
        return SpanExportResult.SUCCESS


if "SPANS" in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines()))
    trace.set_tracer_provider(provider)


class Counter(engram.ActiveObject):
    """Counts."""

    count: int = 0

    @engram.activemethod
    def add(self, number: int) -> int:
        self.count += number
        return self.count

    @engram.activemethod
    def add_twice(self, number: int) -> int:
        self.add(number)
        return self.add(number)

    @engram.activemethod
    def fail(self) -> None:
        raise ZeroDivisionError("on purpose")

    @engram.activemethod
    def die(self) -> None:
        os._exit(3)

    @engram.activemethod(read_only=True)
    def seen(self) -> tuple[int, int]:
        from opentelemetry import trace as imported  # noqa: PLC0415 - as a node's worker has it

        here = imported.get_current_span().get_span_context()
        return here.trace_id, here.span_id
