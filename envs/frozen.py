"""Conversion of plain data to hashable values and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Frozen:
    """Hashable mapping or list."""

    kind: type  # dict or list
    items: tuple[Any, ...]  # of a mapping: (key, value) pairs, sorted by the keys of each type

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def freeze(value: Any) -> Any:
    """Return plain data as a hashable value; mappings, lists and tuples remain distinct."""
    if isinstance(value, Mapping):
        items = [(key, freeze(item)) for key, item in value.items()]
        return Frozen(dict, tuple(sorted(items, key=lambda item: (type(item[0]).__name__, item[0]))))
    if isinstance(value, list):
        return Frozen(list, tuple(map(freeze, value)))
    return tuple(map(freeze, value)) if isinstance(value, tuple) else value


def thaw(value: Any) -> Any:
    """Return the plain data that `freeze` converted."""
    if isinstance(value, Frozen):
        return {key: thaw(item) for key, item in value} if value.kind is dict else [thaw(item) for item in value]
    return tuple(map(thaw, value)) if isinstance(value, tuple) else value
