"""`python -m wheels [PLATFORM ...]`: builds wheels into `target/wheels/`, and tries each.

`make wheels` calls it. If a platform cannot be built for here, it is skipped with the reason. It
ends with 1 if a wheel does not hold what it should, or does not work.
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
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCE = "source"


def tell(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201


def wheel_of(name: str) -> Path | None:
    """Build the wheel for a platform; tell why not, where it cannot be."""
    platform = PLATFORMS[name]
    if reason := platform.missing():
        tell(f"    skipped: {reason}")
        return None
    built = building.build(platform)
    musl = None if platform.is_gnu else platform.musl
    return archive.assemble(built, notices.notices(platform.triple), OUT, musl)


def try_one(name: str, *, again: bool) -> Iterator[str]:
    """Build one, look through it, and try it; say what is wrong."""
    platform = PLATFORMS[name]
    wheel = next(OUT.glob(f"*{platform.tag}.whl"), None) if again else wheel_of(name)
    if wheel is None:
        return
    tell(f"    {wheel.name}: {wheel.stat().st_size / (1 << 20):.1f} MiB")
    yield from audits.problems(wheel, platform)
    yield from outcome(lambda: trials.try_wheel(wheel, platform))


def try_source(*, again: bool) -> Iterator[str]:
    """Make the source distribution, and build a wheel of it elsewhere."""
    made = next(OUT.glob("*.tar.gz"), None) if again else building.source()
    if made is None:
        return
    tell(f"    {made.name}: {made.stat().st_size / (1 << 20):.1f} MiB")
    yield from outcome(lambda: trials.try_source(made))


def outcome(trial: Callable[[], None]) -> Iterator[str]:
    """Make a trial; tell that it was skipped, or say what is wrong."""
    try:
        trial()
    except SkippedError as skipped:
        tell(f"    the trial is skipped: {skipped}")
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
        wrong = list(
            try_source(again=given.again) if name == SOURCE else try_one(name, again=given.again)
        )
        for line in wrong:
            tell(f"    WRONG: {line}")
        failed += bool(wrong)
        tell(f"    done in {time.monotonic() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
