"""`python -m wheels [PLATFORM ...]`: builds wheels into `target/wheels/`, and tries each.

`make wheels` calls it. If a platform cannot be built for here, it is skipped with the reason. If a
wheel cannot be built, does not hold what it should or does not work, it says so, goes on with the
next one, and ends with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from wheels import archive, audits, building, notices, trials
from wheels.outcomes import FailedError, SkippedError
from wheels.platforms import OUT, PLATFORMS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wheels.platforms import Platform

SOURCE = "source"


def tell(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201


def wheel_of(platform: Platform) -> Path:
    """Build the wheel for a platform."""
    platform.require()
    texts = notices.notices(platform)
    musl = None if platform.is_gnu else platform.musl
    return archive.assemble(building.build(platform), texts, OUT, musl)


def made(name: str, *, again: bool) -> Path:
    """Build what is named, in place of what was built before; or find that."""
    pattern = "*.tar.gz" if name == SOURCE else f"*{PLATFORMS[name].tag}.whl"
    before = list(OUT.glob(pattern))
    if again:
        if not before:
            raise SkippedError(f"{OUT} has no {pattern}: build it without --again")
        return building.one(OUT, pattern)
    for file in before:
        file.unlink()
    return building.source() if name == SOURCE else wheel_of(PLATFORMS[name])


def steps(name: str, *, again: bool) -> Iterator[str]:
    """Build what is named, look through it, and try it; say what is wrong."""
    file = made(name, again=again)
    tell(f"    {file.name}: {file.stat().st_size / (1 << 20):.1f} MiB")
    if name == SOURCE:
        trials.try_source(file)
        return
    yield from audits.problems(file, PLATFORMS[name])
    trials.try_wheel(file, PLATFORMS[name])


def wrong_with(name: str, *, again: bool) -> Iterator[str]:
    """Make the steps; tell why one is skipped, or say what is wrong."""
    try:
        yield from steps(name, again=again)
    except SkippedError as skipped:
        tell(f"    skipped: {skipped}")
    except FailedError as failed:
        yield str(failed)


def main() -> int:
    """Build and try what the arguments name; all if they name nothing."""
    known = [*PLATFORMS, SOURCE]
    parser = argparse.ArgumentParser(prog="python -m wheels", description=__doc__)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(known))
    parser.add_argument("--again", action="store_true", help="try what is built; build nothing")
    given = parser.parse_args()
    if unknown := [name for name in given.platforms if name not in known]:
        parser.error(f"{unknown[0]!r} is no platform: there are {', '.join(known)}")
    failed = 0
    for name in given.platforms or known:
        tell(f"==> {name}")
        start = time.monotonic()
        wrong = list(wrong_with(name, again=given.again))
        for line in wrong:
            tell(f"    WRONG: {line}")
        failed += bool(wrong)
        tell(f"    done in {time.monotonic() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
