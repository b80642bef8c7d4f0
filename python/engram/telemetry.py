"""Logs and traces: what Engram does, told to a program that listens.

**Protocol.** Engram imports neither `logging` nor OpenTelemetry. Each record and each span asks
`sys.modules` whether the program has imported the library. If not, nobody can listen: a span is
then one shared object that does nothing, and a record is dropped. The same goes for OpenTelemetry's
API alone, which many packages import: until a program sets a provider of tracers, no span is told
to anybody, and beginning one takes longer than a short method does.

*Spans.* A span is a with-block, or is ended by a later call. Its attributes are given as a function
and its arguments, which is called only where there is OpenTelemetry. If it fails, the span has no
attributes: no trace makes an operation fail.

*Other processes.* `here` gives the span of now as a W3C `traceparent`. It goes along with a call.
There, `within` makes it the parent of what is begun. It has the ids and flags of the trace, and no
`tracestate`.

*Records.* A `Log` is a logger with a handler that does nothing, so that what a program has not
asked for is not printed. A record never has the values of arrays, and no secret.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from engram.plain import printable

Value: TypeAlias = str | bool | int | float | Sequence[str]
Facts: TypeAlias = Callable[..., Mapping[str, Value]]
"""Gives the attributes of a span."""

_TRACE: Final = "opentelemetry.trace"
_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_DEBUG: Final = 10
_INFO: Final = 20
_WARNING: Final = 30
"""The level of `logging`."""


class Span:
    """A span that nobody listens to: it does nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""

    def set(self, facts: Facts, *args: Any) -> None:
        """Give it more attributes: those that `facts(*args)` gives."""

    def end(self, error: BaseException | None = None) -> None:
        """End it, with what has failed; that it has ended already is no error."""


SILENT: Final = Span()
"""The one span of a program without OpenTelemetry."""


class _Told(Span):
    """A span of OpenTelemetry's."""

    __slots__ = ("_manager", "_span")

    def __init__(self, span: Any, manager: "AbstractContextManager[Any]") -> None:
        self._span = span
        self._manager = manager

    def __enter__(self) -> Self:
        self._manager.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._manager.__exit__(kind, error, trace)

    def set(self, facts: Facts, *args: Any) -> None:
        if self._span.is_recording():
            self._span.set_attributes(_attributes(facts, args))

    def end(self, error: BaseException | None = None) -> None:
        if not self._span.is_recording():
            return
        if error is not None:
            found = sys.modules[_TRACE]
            self._span.record_exception(error)
            said = f"{type(error).__name__}: {error}"
            self._span.set_status(found.Status(found.StatusCode.ERROR, said))
        self._span.end()


def is_off() -> bool:
    """Whether no span is told to anybody: what takes microseconds asks before it begins one."""
    return _provider() is None


def _provider() -> Any:
    """Give the provider of tracers, if the program has set one."""
    trace: Any = sys.modules.get(_TRACE)
    if not hasattr(trace, "use_span"):  # none; or another thread imports it at this moment
        return None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else provider


def span(name: str, facts: Facts, *args: Any) -> Span:
    """Begin a span, which ends with its with-block, or with its `end`.

    As a with-block, it is the current span meanwhile, and has failed if the block raises.
    """
    provider = _provider()
    if provider is None:
        return SILENT
    tracer = provider.get_tracer("engram", getattr(sys.modules["engram"], "__version__", None))
    made = tracer.start_span(name, attributes=_attributes(facts, args))
    return _Told(made, sys.modules[_TRACE].use_span(made, end_on_exit=True))


def _attributes(facts: Facts, args: tuple[Any, ...]) -> Mapping[str, Value]:
    with suppress(Exception):
        found = facts(*args)
        return {
            name: printable(each) if isinstance(each, str) else each for name, each in found.items()
        }
    return {}


def here() -> str:
    """Give the current span for another process, as a W3C `traceparent`; "" if there is none."""
    found = sys.modules.get(_TRACE)
    if found is None or not hasattr(found, "use_span"):
        return ""
    current = found.get_current_span().get_span_context()
    if not current.is_valid:
        return ""
    return f"00-{current.trace_id:032x}-{current.span_id:016x}-{current.trace_flags:02x}"


def within(parent: str) -> "AbstractContextManager[Any]":
    """Make a span of another process the parent of what is begun in this with-block."""
    found = sys.modules.get(_TRACE)
    said = _PARENT.fullmatch(parent) if parent and hasattr(found, "use_span") else None
    if found is None or said is None:
        return nullcontext()
    trace_id, span_id, flags = (int(part, 16) for part in said.groups())
    context = found.SpanContext(trace_id, span_id, True, found.TraceFlags(flags))
    return found.use_span(found.NonRecordingSpan(context))  # type: ignore[no-any-return]


def _shown(value: Any) -> Any:
    """Give what a log or a span takes: a name can hold what no file of text does."""
    return value if isinstance(value, bool | int | float) else printable(str(value))


class Log:
    """A logger, once the program has imported `logging`."""

    __slots__ = ("_logger", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger: Any = None

    def debug(self, message: str, *args: Any) -> None:
        """Tell what helps to find out why something happens."""
        self._tell(_DEBUG, message, args)

    def info(self, message: str, *args: Any) -> None:
        """Tell what was done."""
        self._tell(_INFO, message, args)

    def warning(self, message: str, *args: Any) -> None:
        """Tell what was not done as asked, or was lost."""
        self._tell(_WARNING, message, args)

    def _tell(self, level: int, message: str, args: tuple[Any, ...]) -> None:
        logger = self._found()
        if logger is not None and logger.isEnabledFor(level):
            logger.log(level, message, *map(_shown, args), stacklevel=3)

    @property
    def is_debugging(self) -> bool:
        """Whether somebody listens to `debug`."""
        logger = self._logger or self._found()
        return logger is not None and logger.isEnabledFor(_DEBUG)

    def _found(self) -> Any:
        if self._logger is None:
            logging = sys.modules.get("logging")
            if hasattr(logging, "captureWarnings"):  # its last name: it is imported whole
                self._logger = logging.getLogger(self._name)  # type: ignore[union-attr]
                self._logger.addHandler(logging.NullHandler())  # type: ignore[union-attr]
        return self._logger
