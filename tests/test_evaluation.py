"""The evaluation's corpus: the same each time, and the same in HDF5 files as in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np
from bench.evaluation import corpus, questions

if TYPE_CHECKING:
    from pathlib import Path

FEW = 40


def test_a_corpus_is_the_same_each_time(tmp_path: Path) -> None:
    for name in "ab":
        corpus.generate(3, objects=FEW).write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_corpus_has_the_papers_shape() -> None:
    made = corpus.generate(4)
    assert len(made) == 4 * 2167
    attributes = [made.attributes(place) for place in (0, 1, 2166)]
    assert all(len(each) == 37 for each in attributes)
    assert sum(len({each[key] for each in attributes}) == 1 for key in attributes[0]) >= 20
    nearly_unique = [c for c in made.columns if len(c.values) > len(made) // 2]
    assert [column.name for column in nearly_unique] == list(corpus.UNIQUE)
    paths = [made.path(place) for place in range(len(made))]
    assert len(set(paths)) == len(paths)
    assert 0 < sum(questions.PART in path for path in paths) < 2167
    assert 0 < sum(made.attributes(p)["date"] == corpus.DATE for p in range(len(made))) < len(made)


def test_files_say_what_the_corpus_says(tmp_path: Path) -> None:
    made = corpus.generate(2, objects=FEW)
    corpus.granules(made, tmp_path)
    read = corpus.from_files(tmp_path)
    said = {read.path(place): read.attributes(place) for place in range(len(read))}
    assert said == {made.path(place): made.attributes(place) for place in range(len(made))}


def test_stand_ins_have_the_objects_and_their_values(tmp_path: Path) -> None:
    made = corpus.generate(3, objects=FEW)
    corpus.stand_ins(made, tmp_path)
    for place in range(0, len(made), 7):
        granule, _, name = made.path(place).partition("/")
        with h5py.File(tmp_path / f"{granule}.h5") as file:
            np.testing.assert_array_equal(file[name][...], corpus.VALUE + place)
            assert len(file[name].attrs) == len(made.columns)


def test_attributes_of_many_items_are_left_out(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "g.h5", "w") as file:
        dataset = file.create_dataset("deep/x", data=1.0)
        dataset.attrs.update({"one": np.array([4]), "two": [1, 2], "text": "t", "odd": np.nan})
        file.create_dataset("y", data=2.0).attrs["one"] = 4.5
    read = corpus.from_files(tmp_path)
    said = {read.path(place): read.attributes(place) for place in range(len(read))}
    assert said == {"g/deep/x": {"one": 4.0, "text": "t"}, "g/y": {"one": 4.5}}
