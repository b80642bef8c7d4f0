"""What the parts of the evaluation share: a corpus in a folder, its pool, what the program says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import engram
from bench.evaluation import corpus, questions
from bench.own import rust

if TYPE_CHECKING:
    from pathlib import Path

    from bench.evaluation.corpus import Corpus
    from bench.evaluation.questions import Question
    from bench.setting import Setting

GRANULES = 40
QUICK_GRANULES = 8
BATCH = 1000
GROUPING = 4
INDEX = (
    "index_tail", "index_segments", "index_dead", "index_zones", "index_runs",
    "index_families", "index_settings", "queue",
)  # fmt: skip


@dataclass
class Stage:
    """A folder with a corpus and its questions, and perhaps the pool `evaluation.pool`."""

    folder: Path
    corpus: Corpus
    questions: list[Question]

    @property
    def file(self) -> Path:
        """The corpus's file."""
        return self.folder / "corpus"

    @property
    def pool(self) -> Path:
        """The pool."""
        return self.folder / "evaluation.pool"

    def fill(
        self,
        mode: str = "sync",
        per_group: int = GROUPING,
        policy: str = "dynamic",
        durability: str = "process",
        batch: int = BATCH,
    ) -> dict[str, Any]:
        """Fill the pool anew; seconds for each object, and the catalog's bytes."""
        self.clear()
        return rust.run("fill", self.pool, self.file, mode, per_group, policy, durability, batch)

    def ask(self, rounds: int, *names: str) -> dict[str, Any]:
        """Ask all the questions: for each its hits, and the seconds of each contestant."""
        asked = self.folder / "questions"
        questions.write(self.questions, asked)
        return rust.run("ask", self.folder, self.file, asked, rounds, ",".join(names))

    def clear(self) -> None:
        """Remove the pool."""
        if self.pool.exists():
            engram.destroy(self.pool)


def stage(setting: Setting, made: Corpus, name: str = "stage") -> Stage:
    """Write a corpus into a folder of its own."""
    folder = setting.folder / name
    folder.mkdir(exist_ok=True)
    there = Stage(folder, made, [])
    made.write(there.file)
    return there


def usual(setting: Setting) -> Corpus:
    """Return the corpus that the arguments ask for: a folder of files, or one made."""
    if setting.files is not None:
        return corpus.from_files(setting.files)
    return corpus.generate(QUICK_GRANULES if setting.quick else GRANULES)


def index_bytes(filled: dict[str, Any]) -> float:
    """Return the bytes of the tables that are the index."""
    return float(sum(filled["tables"][table][0] for table in INDEX))
