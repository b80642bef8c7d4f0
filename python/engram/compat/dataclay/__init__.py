"""dataClay's programming model on a pool: a dataClay program runs with its import line changed.

::

    from engram.compat.dataclay import Client, DataClayObject, activemethod

    class Person(DataClayObject):
        name: str
        age: int

        def __init__(self, name, age):
            self.name = name
            self.age = age

        @activemethod
        def add_year(self):
            self.age += 1

    with Client(host="/dev/shm/people"):
        Person("Alice", 32).make_persistent("alice")
        Person.get_by_alias("alice").add_year()

The names are those of dataClay 4, and the older ones of the papers (dataClay 2): `api`,
`dclayMethod`, `getRuntime`, docstrings with `@ClassField`. `dataclay_object.py` tells which class
is which, and what is otherwise than in dataClay.
"""

from engram.compat.dataclay import api
from engram.compat.dataclay.alien import AlienDataClayObject
from engram.compat.dataclay.api import getRuntime
from engram.compat.dataclay.client.api import Client
from engram.compat.dataclay.dataclay_object import DataClayObject, StorageObject
from engram.compat.dataclay.method import activemethod, dclayEmptyMethod, dclayMethod
from engram.compat.dataclay.stub import StubDataClayObject

__all__ = [
    "AlienDataClayObject",
    "Client",
    "DataClayObject",
    "StorageObject",
    "StubDataClayObject",
    "activemethod",
    "api",
    "dclayEmptyMethod",
    "dclayMethod",
    "getRuntime",
]
