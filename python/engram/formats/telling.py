"""What is told of imports and exports: their spans, and their reports in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram import telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engram.formats.report import ExportReport, ImportFailure, ImportReport

_IN = telemetry.Log("engram.import")
_OUT = telemetry.Log("engram.export")
_SHOWN = 5
"""So many of the things that were left out are named."""


def importing(path: Path, namespace: Any) -> telemetry.Span:
    """Give the span of a file's import."""
    return telemetry.span("engram.import", _facts, path, namespace)


def exporting(path: Path) -> telemetry.Span:
    """Give the span of an export to a file."""
    return telemetry.span("engram.export", lambda: {"engram.path": str(path)})


def importing_files(namespace: Any) -> telemetry.Span:
    """Give the span of an import of many files."""
    return telemetry.span("engram.import.files", lambda: {"engram.pool": _pool(namespace)})


def imported(report: ImportReport) -> ImportReport:
    """Log what an import has done; give its report."""
    numbers = (report.arrays, report.nbytes, report.seconds)
    where = (report.file, report.format, f"/{report.group}")
    _IN.info("%s (%s) into %s: %d arrays, %d bytes in %.3f s", *where, *numbers)
    _tell_left_out(_IN, report)
    return report


def exported(report: ExportReport) -> ExportReport:
    """Log what an export has done; give its report."""
    numbers = (report.arrays, report.nbytes, report.seconds)
    where = (f"/{report.source}", report.file, report.format)
    _OUT.info("%s to %s (%s): %d arrays, %d bytes in %.3f s", *where, *numbers)
    _tell_left_out(_OUT, report)
    return report


def failed(failure: ImportFailure) -> ImportFailure:
    """Log that a file of many was not imported; give what is said of it."""
    _IN.warning("%s was not imported: %s", failure.file, failure.error)
    return failure


def numbers(report: ImportReport | ExportReport) -> Mapping[str, telemetry.Value]:
    """Give the attributes of a span when it ends."""
    return {
        "engram.format": report.format,
        "engram.group": report.group if hasattr(report, "group") else report.source,
        "engram.arrays": report.arrays,
        "engram.bytes": report.nbytes,
        "engram.left_out": len(report.left_out),
    }


def _facts(path: Path, namespace: Any) -> Mapping[str, telemetry.Value]:
    return {"engram.path": str(path), "engram.pool": _pool(namespace)}


def _pool(namespace: Any) -> str:
    return str(namespace.pool_path)


def _tell_left_out(log: telemetry.Log, report: ImportReport | ExportReport) -> None:
    for entry in report.left_out[:_SHOWN]:
        log.warning("%s: left out: %s", report.file, entry)
    if (more := len(report.left_out) - _SHOWN) > 0:
        log.warning("%s: %d more were left out", report.file, more)
