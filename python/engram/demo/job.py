"""The main job, from an empty folder to a checked result; read `run` from top to bottom."""

from __future__ import annotations

import json
import random
import shutil
import time
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import engram
from engram.demo import climatology, picture
from engram.demo.layout import (
    CHANNEL,
    DIAGNOSTICS,
    QUANTITIES,
    RUN,
    STRIPS,
    array,
    gather,
    step_path,
    views,
    wait_until,
    whole,
)
from engram.demo.place import create, default_pool
from engram.demo.processes import Log, Worker, Writer
from engram.demo.shallow_water import FIELDS, Field, State
from engram.demo.tell import Teller, mib

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

STEPS = 240
SPARE = 1.3
VICTIM = "north"
MASS_TOLERANCE = 1e-12
PICTURE = "vorticity.png"


class Job:
    """One run of the main job: its pool, its folder and its processes."""

    def __init__(self, out: Path, pool: Path | None, steps: int, teller: Teller) -> None:
        """Prepare to run `steps` steps with results in `out` and the pool at `pool`."""
        self.out, self.steps, self.teller = out, steps, teller
        self.logs = out / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.step_nbytes = len(FIELDS) * 8 * CHANNEL.ny * CHANNEL.nx
        self.pool_nbytes = int(SPARE * self.step_nbytes * (steps + 1)) + (64 << 20)
        self.pool_path = pool or default_pool(out, self.pool_nbytes)
        self.workers: list[Worker] = []
        self.died_at = 0
        self.used_before = 0

    def create_pool(self) -> engram.Pool:
        """Create the pool and say where it is and what its durability means."""
        pool, remark = create(self.pool_path, self.pool_nbytes)
        survives = {"process": "any process's death", "system": "a power cut too"}
        self.teller.say(f"{self.pool_path}, up to {mib(self.pool_nbytes)}")
        self.teller.say(f"durability {pool.durability}: survives {survives[pool.durability]}")
        if remark:
            self.teller.say(f"[yellow]{remark}[/]")
        return pool

    def import_file(self, pool: engram.Pool, file: Path | None) -> str:
        """Import `file`, or the climatology that is written first; the path it is at in the pool.

        Claims that every variable equals the file's, value by value.
        """
        path = file or self.out / "climatology.nc"
        if file is None:
            climatology.write_file(path)
            self.teller.say(f"wrote {path} with netCDF4")
        group = pool.create_group(f"imported/{path.stem.replace('/', '_')}")
        start = time.perf_counter()
        engram.import_file(path, group)
        self.teller.say(f"imported into {group.path} in {time.perf_counter() - start:.3f} s")
        equal, unequal = climatology.compare(group, path)
        self.teller.claim(
            bool(equal) and not unequal,
            f"{len(equal)} variables equal the file's, value by value"
            + (f"; not so: {', '.join(unequal)}" if unequal else ""),
        )
        self.teller.say("computed on it in place:")
        rows = [
            [name, dtype, f"{low:.6g}", f"{mean:.6g}", f"{high:.6g}"]
            for name, dtype, low, mean, high in climatology.summaries(group)
        ]
        self.teller.table(["variable", "dtype", "least", "mean", "greatest"], rows[:12])
        return group.path

    def simulate(self, pool: engram.Pool) -> None:
        """Run the two writers and the observer to the end; kill a writer half-way."""
        for strip in STRIPS:
            for quantity, unit in QUANTITIES.items():
                path = f"{DIAGNOSTICS}/{strip}/{quantity}"
                pool.create_array(path, shape=(self.steps + 1,), dtype="f8", attrs={"units": unit})
        self.used_before = pool.used
        writers = {name: self.start_writer(name) for name in STRIPS}
        observer = Worker(
            "observer", [str(self.pool_path), str(self.steps)], self.logs / "observer.out"
        )
        self.workers.append(observer)
        for name, writer in writers.items():
            self.teller.say(f"writer {name}: pid {writer.pid}")
        self.teller.say(f"observer: pid {observer.pid}")
        start = time.time()
        self.watch(writers, self.steps // 2)
        writers[VICTIM] = self.kill_and_replace(pool, writers[VICTIM])
        self.watch(writers, self.steps)
        for writer in writers.values():
            writer.finish()
        end = time.time()
        self.teller.say(
            f"{2 * (self.steps + 1)} strip-steps, {mib(self.step_nbytes * (self.steps + 1))}, in "
            f"{end - start:.1f} s: {CHANNEL.step_s * self.steps / 86400:.1f} days of the model"
        )
        self.tell_observed(json.loads(observer.finish()), end)

    def start_writer(self, name: str, attempt: int = 1) -> Writer:
        """Start a writer of strip `name`."""
        writer = Writer(self.pool_path, name, self.steps, self.logs, attempt)
        self.workers.append(writer)
        return writer

    def watch(self, writers: dict[str, Writer], until: int) -> None:
        """Show the writers' progress until the victim's strip has begun, or finished, `until`."""
        columns = (
            TextColumn("  {task.description:<6}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        event = "published" if until == self.steps else "begin"
        with Progress(*columns, console=self.teller.console, transient=True) as progress:
            bars = {name: progress.add_task(name, total=self.steps) for name in writers}

            def reached() -> bool:
                for worker in self.workers:
                    if worker.process.returncode is None:
                        worker.check()
                for name, bar in bars.items():
                    steps = writers[name].log.steps("published")
                    progress.update(bar, completed=steps[-1] if steps else 0)
                wanted = writers if until == self.steps else [VICTIM]
                return all(until in writers[name].log.steps(event) for name in wanted)

            wait_until(reached, f"step {until}", lambda: [bar.completed for bar in progress.tasks])

    def kill_and_replace(self, pool: engram.Pool, victim: Writer) -> Writer:
        """Kill the victim while it computes in space it has reserved; start its successor."""
        time.sleep(random.uniform(0.0, 0.03))  # noqa: S311 - any moment of the step will do
        before = pool.space
        victim.kill()
        self.workers.remove(victim)
        acknowledged = victim.log.steps("published")
        self.died_at = victim.log.steps("begin")[-1]
        self.teller.say(
            f"[bold red]SIGKILL[/] to writer {VICTIM} (pid {victim.pid}) in step {self.died_at}; "
            f"it had acknowledged {len(acknowledged)} steps"
        )
        self.teller.say(f"used {mib(before.used)}, reserved {mib(before.pending)}")
        missing = [step for step in acknowledged if not is_whole(pool, VICTIM, step)]
        self.teller.claim(not missing, f"all {len(acknowledged)} acknowledged steps are there")
        there = step_path(VICTIM, self.died_at) in pool
        self.teller.claim(
            not there or is_whole(pool, VICTIM, self.died_at),
            f"step {self.died_at}, which it was computing, is "
            + ("there, and whole" if there else "not there, not even in part"),
        )
        successor = self.start_writer(VICTIM, attempt=2)
        self.teller.say(f"writer {VICTIM} again: pid {successor.pid} goes on from what is there")
        return successor

    def stop(self) -> None:
        """Kill what still runs, after a failure."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()

    def tell_observed(self, seen: dict[str, float], end_unix_s: float) -> None:
        """Say and claim what the observer did."""
        self.teller.say(
            f"observer: {seen['views']} views, {mib(seen['bytes'])} computed on in place, median "
            f"{seen['lag_median_s'] * 1e3:.1f} ms after a step was published"
        )
        expected = len(FIELDS) * len(STRIPS) * (self.steps + 1)
        self.teller.claim(
            seen["views"] == expected and seen["copies"] == 0,
            f"the observer saw all {expected} fields on the pool's own memory, read-only",
        )
        self.teller.claim(
            seen["seen_unix_s"] < end_unix_s, "it computed while the writers were writing"
        )

    def check(self, pool: engram.Pool) -> None:
        """Check the whole run: every acknowledged step, the space, the take-over, the mass."""
        logs = {name: Log(self.logs / f"{name}.log") for name in STRIPS}
        acknowledged = {(name, step) for name in STRIPS for step in logs[name].steps("published")}
        missing = [pair for pair in acknowledged if not is_whole(pool, *pair)]
        self.teller.claim(
            len(acknowledged) == len(STRIPS) * (self.steps + 1) and not missing,
            f"all {len(acknowledged)} acknowledged steps of both writers are there, and whole",
        )
        space = pool.space
        grown = space.used - self.used_before
        published = self.step_nbytes * (self.steps + 1)
        self.teller.claim(
            grown == published and space.pending == 0,
            f"the dead writer's space came back: {grown} bytes more are used, the fields have "
            f"{published}, and {space.pending} are reserved",
        )
        self.teller.claim(
            self.same_without_death(pool),
            "across the take-over the fields are, bit for bit, "
            "those of one process that computes the whole channel and is not killed",
        )
        parts = [array(pool, f"{DIAGNOSTICS}/{name}/mass")[...] for name in STRIPS]
        mass = np.sum(parts, axis=0)
        drift = float(np.abs(mass / mass[0] - 1).max())
        self.teller.claim(drift < MASS_TOLERANCE, f"mass is conserved to {drift:.1e}")

    def draw(self, pool: engram.Pool) -> None:
        """Draw the picture from the pool as it has been opened again."""
        path = self.out / PICTURE
        try:
            picture.draw(pool, self.steps, (VICTIM, self.died_at), path)
        except ModuleNotFoundError as missing:
            self.teller.claim(
                False, f"the picture needs {missing.name}: pip install 'engram[demo]'"
            )
        else:
            self.teller.claim(path.stat().st_size > 0, f"a new look at the pool gave {path}")

    def same_without_death(self, pool: engram.Pool) -> bool:
        """Whether the whole channel in one piece goes the same way around the step of the death."""
        rows = slice(0, CHANNEL.ny)
        for step in range(max(self.died_at - 2, 1), min(self.died_at + 2, self.steps) + 1):
            state = State(*(np.empty((CHANNEL.ny, CHANNEL.nx)) for _ in FIELDS))
            whole().advance(gather(pool, rows, step - 1), into=state)
            if any(map(differ, state, gather(pool, rows, step))):
                return False
        return True


def is_whole(pool: engram.Pool, strip: str, step: int) -> bool:
    """Whether a step is there with all its fields, finite, and the mass that its writer noted."""
    try:
        state = views(pool, strip, step)
        noted = float(pool[step_path(strip, step)].attrs["mass"])
    except engram.NotFoundError:
        return False
    return all(np.isfinite(field).all() for field in state) and float(state.h.sum()) == noted


def differ(one: Field, other: Field) -> bool:
    """Whether two fields differ in any bit."""
    return one.tobytes() != other.tobytes()


def run(
    out: Path,
    *,
    file: Path | None = None,
    pool: Path | None = None,
    steps: int = STEPS,
    console: Console | None = None,
) -> bool:
    """Run the main job.

    Parameters
    ----------
    out
        The folder for the picture, the report and the logs; made if missing.
    file
        A netCDF file to import and compute on; without it the job writes one first.
    pool
        Where to create the pool; without it `/dev/shm` if it has room, else `out`.
    steps
        How many steps of the simulation to publish, each of 12 minutes in the model.
    console
        Where to print; standard output by default.

    Returns
    -------
    Whether every claim held.

    Raises
    ------
    EngramError
        If the pool cannot be created, or the file cannot be imported.
    RuntimeError
        If a process failed that was not meant to; the message has its last words.

    """
    start = time.perf_counter()
    teller = Teller(console)
    out.mkdir(parents=True, exist_ok=True)
    job = Job(out, pool, steps, teller)
    try:
        with teller.step("Create a pool"):
            handle = job.create_pool()
        with teller.step("Import a netCDF file and compute on it where it lies"):
            imported = job.import_file(handle, file)
        with teller.step("Two processes simulate into the pool, a third computes on it"):
            job.simulate(handle)
        with teller.step("Check what came out"):
            job.check(handle)
            if file is None:
                first, last = (climatology.eddy_share(handle, imported, n) for n in (0, steps))
                teller.say(
                    f"eddies about the imported wind hold {last:.0%} of the kinetic energy, "
                    f"{first:.0%} at the start"
                )
            handle.close()
            problems = engram.verify(job.pool_path).problems
            teller.claim(not problems, f"engram verify finds {len(problems)} problems")
        with teller.step("Draw the last field"), engram.open(job.pool_path, "r") as again:
            job.draw(again)
    finally:
        job.stop()
    tell_results(job, time.perf_counter() - start)
    return teller.all_held


def tell_results(job: Job, took_s: float) -> None:
    """Write the report and say where everything is."""
    teller = job.teller
    report = job.out / "report.json"
    contents = {
        "held": teller.all_held,
        "claims": [{"held": held, "claim": text} for held, text in teller.claims],
        "timings_s": teller.timings_s,
        "took_s": took_s,
        "pool": str(job.pool_path),
    }
    report.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    held = sum(held for held, _ in teller.claims)
    colour = "green" if teller.all_held else "red"
    teller.console.print(
        f"\n[bold {colour}]{held} of {len(teller.claims)} claims held[/], in {took_s:.1f} s"
    )
    teller.say(f"picture  {job.out / PICTURE}")
    teller.say(f"report   {report}")
    teller.say(f"pool     {job.pool_path}   (engram ls {job.pool_path} {RUN})")
    teller.say(f"remove   engram destroy {job.pool_path}")
