"""What can go wrong, under dataClay's names; each is Engram's own error, too, where there is one.

So a program catches it under either name. Texts are dataClay's.
"""

from typing import Any

from engram.active.errors import (
    AliasNotFoundError,
    AliasTakenError,
    ObjectDeletedError,
    UnsupportedFieldError,
    VersionError,
)
from engram.errors import ArgumentError, NotFoundError


class DataClayException(Exception):  # noqa: N818 - dataClay's name
    """Any error of dataClay."""

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[DataClayException], args: Any, facts: dict[str, Any]) -> DataClayException:
    """Give an error that was pickled, whose class may take other arguments than its text."""
    made = kind.__new__(kind)
    made.args = args
    made.__dict__.update(facts)
    return made


class AlreadyExistError(DataClayException):
    """There is one of that name already."""

    def __init__(self, id: Any) -> None:  # noqa: A002 - dataClay's name
        super().__init__(f"{id} already exists")


class DoesNotExistError(DataClayException, ObjectDeletedError):
    """There is none of that name or id."""

    def __init__(self, id: Any) -> None:  # noqa: A002 - dataClay's name
        super().__init__(f"{id} does not exist")


class AccountError(DataClayException):
    """Something is wrong with an account; Engram has the system's users instead."""


class AccountInvalidCredentialsError(AccountError):
    """Not raised: the kernel decides who may open a pool."""


class DatasetError(DataClayException):
    """Something is wrong with a dataset."""

    def __init__(self, dataset_name: str) -> None:
        self.dataset_name = dataset_name
        super().__init__(f"Dataset {dataset_name}")


class DatasetIsNotAccessibleError(DatasetError):
    """A dataset is not there, or not for this user."""

    def __init__(self, dataset_name: str, username: str | None = None) -> None:
        self.username = username
        super().__init__(dataset_name)
        self.args = (f"Dataset {dataset_name} is not accessible by {username}",)


class AliasError(DataClayException):
    """Something is wrong with an alias."""

    _text = "Alias {dataset_name}/{alias_name}"

    def __init__(self, alias_name: str, dataset_name: str | None = None) -> None:
        self.alias_name = alias_name
        self.dataset_name = dataset_name
        text = self._text.format(alias_name=alias_name, dataset_name=dataset_name)
        Exception.__init__(self, text)


class AliasDoesNotExistError(AliasError, AliasNotFoundError):
    """No object has this alias."""

    _text = "Alias {dataset_name}/{alias_name} does not exist"


class AliasAlreadyExistError(AliasError, AlreadyExistError, AliasTakenError):
    """Another object has this alias."""

    _text = "Alias {dataset_name}/{alias_name} already exists"


class ObjectError(DataClayException):
    """Something is wrong with an object."""

    _text = "Object {object_id}"

    def __init__(self, object_id: Any, *facts: Any) -> None:
        self.object_id = object_id
        Exception.__init__(self, self._text.format(object_id=object_id))
        del facts


class ObjectNotRegisteredError(ObjectError, ArgumentError):
    """The object is not persistent."""

    _text = "Object {object_id} is not registered!"


class ObjectWithWrongBackendIdError(ObjectError):
    """Not raised: an object is found wherever it is."""


class ObjectIsNotVersionError(ObjectError, VersionError):
    """The object is no version, or not one any more."""

    _text = "Object {object_id} is not a version!"


class ObjectIsMasterError(ObjectError):
    """Not raised: `sync` of an original brings its replicas up to date."""

    _text = "Object {object_id} is the master!"


class ObjectNotFound(ObjectError, NotFoundError):  # noqa: N818 - dataClay's name
    """The object is not in the store."""

    _text = "Object {object_id} not found."


class ObjectStorageError(ObjectError):
    """The object could not be stored."""

    _text = "Could not store object {object_id}."


class UnsupportedValueError(DataClayException, UnsupportedFieldError):
    """A field's value is of a type that a pool does not hold; dataClay pickles any."""


class BackendError(DataClayException):
    """Something is wrong with a backend."""


class BackendUnknownError(BackendError, NotFoundError):
    """No open pool has a backend of this id; it is a `KeyError`, too."""


class NoOtherBackendsAvailable(BackendError):  # noqa: N818 - dataClay's name
    """There is no other backend."""


class DataclayError(DataClayException):
    """Something is wrong with another dataClay; there is none here."""


class DataclayIdError(DataClayException):
    """Not raised."""


class ImproperlyConfigured(DataClayException, ValueError):  # noqa: N818 - dataClay's name
    """dataClay 2: the session's file is missing, or names no pool."""


class IdentifierNotFound(DataClayException, NotFoundError):  # noqa: N818 - dataClay's name
    """dataClay 2: there is nothing of this id."""


class InvalidPythonSignature(DataClayException, UnsupportedFieldError):  # noqa: N818 - likewise
    """dataClay 2: a docstring or a decorator names a type that dataClay does not have."""


class RemoteException(RuntimeError):  # noqa: N818 - dataClay's name
    """dataClay 2: not raised; methods run here, and raise what they raise."""


class NetworkError(RuntimeError):
    """dataClay 2: not raised; there is no network."""


class ClientError(RuntimeError):
    """dataClay 2: a call that needs `api.init()` first."""
