"""What an annotation says beside a field's type."""

from typing import Any


class PropertyTransformer:
    """Changes a field's value on its way in and out: `Annotated[list, Sorted()]`."""

    def getter(self, value: Any) -> Any:
        """Give what the program sees of the value that is stored."""
        return value

    def setter(self, value: Any) -> Any:
        """Give what is stored of a value that the program assigns."""
        return value


class LocalOnly:
    """Makes an annotated attribute no field: `Annotated[T, LocalOnly()]`."""
