"""The exceptions under the module's name that dataClay 2 has."""

from engram.compat.dataclay.exceptions import (
    ClientError,
    DataClayException,
    IdentifierNotFound,
    ImproperlyConfigured,
    InvalidPythonSignature,
    NetworkError,
    RemoteException,
)

__all__ = [
    "ClientError",
    "DataClayException",
    "IdentifierNotFound",
    "ImproperlyConfigured",
    "InvalidPythonSignature",
    "NetworkError",
    "RemoteException",
]
