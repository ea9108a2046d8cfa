"""Codecs of composite spaces: Dict and Tuple."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from paddock.envs.spaces.codecs import Array, Codec, Leaf, Path, Read, SourceBuilder, SpaceMismatch, Views, at_path


@final
class RecordCodec(Codec):
    """Codec of a Dict or a Tuple: the codecs of its components one after another, each aligned."""

    def __init__(self, path: Path, codecs: Mapping[str | int, Codec], size: int | None) -> None:
        """Lay out the components.

        Args:
            path: keys and positions of the space.
            codecs: of the components that are kept, by key or position.
            size: number of components of a Tuple's element; None for a Dict.
        """
        self.path, self.codecs, self.size = path, dict(codecs), size
        self.names = [str(k) for k in range(len(self.codecs))]  # distinct keys of a Dict may have the same text
        named = [(name, codec.dtype) for name, codec in zip(self.names, self.codecs.values(), strict=True)]
        self.dtype = np.dtype(named, align=True)

    def leaves(self, offset: int) -> Iterator[Leaf]:
        """See `Codec.leaves`."""
        for name, codec in zip(self.names, self.codecs.values(), strict=True):
            assert self.dtype.fields is not None
            yield from codec.leaves(offset + self.dtype.fields[name][1])

    def views(self, array: Array) -> Views:
        """See `Codec.views`."""
        return self._join(
            [codec.views(array[name]) for name, codec in zip(self.names, self.codecs.values(), strict=True)]
        )

    def emit(self, source: SourceBuilder, value: str, views: Views) -> None:
        """See `Codec.emit`."""
        own = source.local()
        source.add(f"{own} = {value}")
        if self.size is not None:
            source.add(f"if len({own}) != {self.size}:", f"    {source.bind(self._check)}({own})")
        for (key, codec), view in zip(self.codecs.items(), self._each(views), strict=True):
            codec.emit(source, f"{own}[{key!r}]", view)

    def reader(self, views: Views) -> Read:
        """See `Codec.reader`."""
        reads = [codec.reader(view) for codec, view in zip(self.codecs.values(), self._each(views), strict=True)]
        return lambda index: self._join([read(index) for read in reads])

    def batch(self, views: Views) -> Any:
        """See `Codec.batch`."""
        return self._join(
            [codec.batch(view) for codec, view in zip(self.codecs.values(), self._each(views), strict=True)]
        )

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        """See `Codec.pack`."""
        self._check(batch)
        for (key, codec), view in zip(self.codecs.items(), self._each(views), strict=True):
            codec.pack(view, batch[key], choices)

    def count_rows(self, batch: Any) -> int:
        """See `Codec.count_rows`."""
        key, codec = next(iter(self.codecs.items()))
        return codec.count_rows(batch[key])

    def _check(self, element: Any) -> None:
        at = at_path(self.path)
        if self.size is not None:
            if not isinstance(element, Sequence):
                raise SpaceMismatch(f"{type(element).__name__}{at}, expected a tuple of {self.size}")
            if len(element) != self.size:
                raise SpaceMismatch(f"{len(element)} parts{at}, expected {self.size}")
        elif not isinstance(element, Mapping):
            raise SpaceMismatch(f"{type(element).__name__}{at}, expected a mapping")
        for key in self.codecs if self.size is None else ():
            if key not in element:
                name = at_path((*self.path, key)).removeprefix(" at ") if self.path else repr(key)
                raise SpaceMismatch(f"no {name}, which the space contains")

    def _each(self, views: Views) -> Sequence[Views]:
        return views if isinstance(views, tuple) else list(views.values())

    def _join(self, codecs: Sequence[Any]) -> Any:
        return tuple(codecs) if self.size is not None else dict(zip(self.codecs, codecs, strict=True))
