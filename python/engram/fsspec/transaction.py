"""A transaction: all files that are written in it are there with one commit, or none is.

fsspec gathers the files that are written within a transaction, and commits or discards each at its
end. Here the commit is one batch of the pool. So others see all of the files or none, and an error
at any of them leaves none. What others do meanwhile to the same files does not fail it: the batch
is run again, and the last one counts, as with files.

What is not the writing of a file (`rm`, `mv`, `cp`, `mkdir`) happens at once, as fsspec has it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from fsspec.transaction import Transaction

from engram.batch import Batch
from engram.errors import ArgumentError
from engram.fsspec.change import again
from engram.fsspec.errors import Told

if TYPE_CHECKING:
    from engram.fsspec.place import Place
    from engram.fsspec.writing import WriteFile


class PoolTransaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """The files of one pool that are committed together."""

    files: deque[WriteFile]
    fs: Any

    def join(self, place: Place) -> None:
        """Refuse a file of another pool than the others'.

        Raises
        ------
        ArgumentError
            If it is of another one.

        """
        if not self.files:
            return
        first = self.files[0].place()
        if not first.namespace.same_pool(place.namespace):
            raise ArgumentError(
                f"{place.path} and {first.path} are in two pools, and a transaction is one commit "
                "of one pool: make two transactions"
            )

    def complete(self, commit: bool = True) -> None:
        """End it: commit all of its files, or discard all."""
        gathered, self.files = list(self.files), deque()
        files = [file for file in gathered if not file.is_given_up]
        try:
            if commit and files:
                _refuse_open(files)
                again(lambda: _apply(files))
        finally:
            for file in files:
                file.discard()
            fs, self.fs = self.fs, None
            if fs is not None:
                fs._intrans = False
                fs._transaction = None


def _refuse_open(files: list[WriteFile]) -> None:
    for file in files:
        if not file.closed:
            raise ArgumentError(
                f"{file.path} is open still, so no file of its transaction is written: close it "
                "before the transaction ends"
            )


def _apply(files: list[WriteFile]) -> None:
    named = f"a transaction of {len(files)} files, {files[0].path} and more"
    with Told(named), Batch(files[0].place().namespace):
        for file in files:
            file.change().apply()
