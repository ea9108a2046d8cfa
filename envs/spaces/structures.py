"""Spaces made of spaces in a row: mappings and tuples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from paddock.envs.spaces.parts import Array, Leaf, Misfit, Part, Path, Read, Source, Views, place


@final
class Record(Part):
    """A Dict or a Tuple: its parts one after another, each aligned."""

    def __init__(self, path: Path, parts: Mapping[str | int, Part], size: int | None) -> None:
        """Args:
        parts: those that are kept, by key or position.
        size: of a tuple, how many parts an element has; None for a Dict.
        """
        self.path, self.parts, self.size = path, dict(parts), size
        self.names = [str(k) for k in range(len(self.parts))]  # keys of a Dict may be alike as text
        named = [(name, part.dtype) for name, part in zip(self.names, self.parts.values(), strict=True)]
        self.dtype = np.dtype(named, align=True)

    def leaves(self, offset: int) -> Iterator[Leaf]:
        for name, part in zip(self.names, self.parts.values(), strict=True):
            assert self.dtype.fields is not None
            yield from part.leaves(offset + self.dtype.fields[name][1])

    def views(self, array: Array) -> Views:
        return self._join([part.views(array[name]) for name, part in zip(self.names, self.parts.values(), strict=True)])

    def emit(self, source: Source, value: str, views: Views) -> None:
        own = source.local()
        source.add(f"{own} = {value}")
        if self.size is not None:
            source.add(f"if len({own}) != {self.size}:", f"    {source.bind(self._check)}({own})")
        for (key, part), view in zip(self.parts.items(), self._each(views), strict=True):
            part.emit(source, f"{own}[{key!r}]", view)

    def reader(self, views: Views) -> Read:
        reads = [part.reader(view) for part, view in zip(self.parts.values(), self._each(views), strict=True)]
        return lambda index: self._join([read(index) for read in reads])

    def batch(self, views: Views) -> Any:
        return self._join([part.batch(view) for part, view in zip(self.parts.values(), self._each(views), strict=True)])

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        self._check(batch)
        for (key, part), view in zip(self.parts.items(), self._each(views), strict=True):
            part.pack(view, batch[key], choices)

    def rows_in(self, batch: Any) -> int:
        key, part = next(iter(self.parts.items()))
        return part.rows_in(batch[key])

    def _check(self, element: Any) -> None:
        at = place(self.path)
        if self.size is not None:
            if not isinstance(element, Sequence):
                raise Misfit(f"{type(element).__name__}{at} where a tuple of {self.size} is declared")
            if len(element) != self.size:
                raise Misfit(f"{len(element)} parts{at} where {self.size} are declared")
        elif not isinstance(element, Mapping):
            raise Misfit(f"{type(element).__name__}{at} where a mapping is declared")
        for key in self.parts if self.size is None else ():
            if key not in element:
                name = place((*self.path, key)).removeprefix(" at ") if self.path else repr(key)
                raise Misfit(f"no {name}, which is declared")

    def _each(self, views: Views) -> Sequence[Views]:
        return views if isinstance(views, tuple) else list(views.values())

    def _join(self, parts: Sequence[Any]) -> Any:
        return tuple(parts) if self.size is not None else dict(zip(self.parts, parts, strict=True))
