"""Spaces that vary in size within a bound: text, one of several spaces, items, graphs."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
from gymnasium.spaces import GraphInstance

from paddock.envs.spaces.parts import (
    Array,
    Index,
    Leaf,
    Misfit,
    NumbersPart,
    Part,
    Path,
    Read,
    Source,
    Views,
    Write,
    place,
)
from paddock.envs.spaces.structures import Record
from paddock.envs.spaces.views import copied, first, flatten, select

INTEGER = np.dtype(np.int64)


class Varying(Part):
    """A space that differs in size or structure from row to row: written, read and batched one by one.

    Attributes:
        record: what it is made of.
    """

    record: Record

    def leaves(self, offset: int) -> Iterator[Leaf]:
        return self.record.leaves(offset)

    def views(self, array: Array) -> Views:
        return self.record.views(array)

    def emit(self, source: Source, value: str, views: Views) -> None:
        source.add(f"{source.bind(self.write(views))}(index, {value})")

    @abc.abstractmethod
    def write(self, views: Views) -> Write:
        """A function that writes one element at an index; it raises Misfit."""

    def batch(self, views: Views) -> Any:
        read = self.reader(views)
        return tuple([read(row) for row in range(len(first(views)))])

    def pack(self, views: Views, batch: Any, choices: bool = False) -> None:
        write, rows = self.write(views), len(first(views))
        if not isinstance(batch, Sequence | np.ndarray) or len(batch) != rows:
            got = f"{len(batch)}" if isinstance(batch, Sequence | np.ndarray) else f"{type(batch).__name__}"
            raise Misfit(f"{got}{place(self.path)} where a sequence of {rows} is declared")
        for row, element in enumerate(batch):
            write(row, element)


@final
class Text(Varying):
    """A text of at most so many characters; what is shorter ends in zeros."""

    def __init__(self, path: Path, lead: tuple[int, ...], most: int) -> None:
        self.path, self.most = path, most
        self.dtype = np.dtype((f"U{max(most, 1)}", lead))  # NumPy has no texts of none

    def leaves(self, offset: int) -> Iterator[Leaf]:
        yield Leaf(self.path, "text", offset, self.dtype.base.str, self.dtype.shape)

    def views(self, array: Array) -> Views:
        return array

    def write(self, views: Views) -> Write:
        def write(index: Index, element: Any) -> None:
            if not isinstance(element, str):
                raise Misfit(f"{type(element).__name__}{place(self.path)} where a text is declared")
            if len(element) > self.most:
                raise Misfit(f"{len(element)} characters{place(self.path)} where {self.most} at most are declared")
            views[index] = element

        return write

    def reader(self, views: Views) -> Read:
        item = views.item
        return lambda index: item(index)


@final
class OneOf(Varying):
    """A OneOf: which alternative it is, and all of them one after another; those it is not are zeros."""

    def __init__(self, path: Path, lead: tuple[int, ...], options: Sequence[Part]) -> None:
        self.path = path
        self.tag = NumbersPart((*path, "tag"), "tag", INTEGER, lead, (), (len(options),), (0,))
        self.record = Record(path, {"tag": self.tag, **dict(enumerate(options))}, None)
        self.options, self.dtype = list(options), self.record.dtype

    def write(self, views: Views) -> Write:
        tag = views["tag"]
        writes = [part.writer(views[k]) for k, part in enumerate(self.options)]
        arrays = [list(flatten(views[k])) for k in range(len(writes))]

        def write(index: Index, element: Any) -> None:
            chosen = element[0] if isinstance(element, tuple | list) and len(element) == 2 else None
            if not isinstance(chosen, int | np.integer) or not 0 <= chosen < len(writes):
                got = repr(chosen) if chosen is not None else f"{type(element).__name__}"
                raise Misfit(f"{got}{place(self.path)} where one of {len(writes)} with its value is declared")
            clear(arrays[tag[index]], index)
            writes[chosen](index, element[1])
            tag[index] = chosen

        return write

    def reader(self, views: Views) -> Read:
        tag, reads = views["tag"], [part.reader(views[k]) for k, part in enumerate(self.options)]

        def read(index: Index) -> Any:
            chosen = tag[index]  # an int64, as Gymnasium's own samples have it
            return chosen, reads[chosen](index)

        return read


@final
class Items(Varying):
    """A Sequence of at most so many items; those there are not are zeros."""

    def __init__(self, path: Path, lead: tuple[int, ...], most: int, key: str, item: Part, stacked: bool) -> None:
        """Args:
        key: of the configuration, which sets the bound.
        item: with the bound at the end of its lead.
        stacked: an element is a batch of items in Gymnasium's form, and not a tuple.
        """
        self.path, self.most, self.key, self.item, self.stacked = path, most, key, item, stacked
        self.length = NumbersPart((*path, "length"), "length", INTEGER, lead, (), (most,), (0,))
        self.record = Record(path, {"length": self.length, "items": item}, None)
        self.dtype = self.record.dtype

    def write(self, views: Views) -> Write:
        length, items, write_item = views["length"], views["items"], self.item.writer(views["items"])
        arrays = list(flatten(items))

        def write(index: Index, element: Any) -> None:
            count = self.item.rows_in(element) if self.stacked else len(element)
            if count > self.most:
                raise _overflow(count, "items", self)
            before = int(length[index])
            at = deeper(index)
            if self.stacked:
                self.item.pack(select(items, (*at, slice(0, count))), element, choices=True)
            else:
                for place_, item in enumerate(element):
                    write_item((*at, place_), item)
            if before > count:
                clear(arrays, (*at, slice(count, before)))
            length[index] = count

        return write

    def reader(self, views: Views) -> Read:
        length, items, read_item = views["length"], views["items"], self.item.reader(views["items"])

        def read(index: Index) -> Any:
            at, count = deeper(index), int(length[index])
            if self.stacked:
                return self.item.batch(copied(select(items, (*at, slice(0, count)))))
            return tuple([read_item((*at, k)) for k in range(count)])

        return read


@final
class Graph(Varying):
    """A Graph of at most so many nodes and edges: both as items in Gymnasium's batch form, and pairs of nodes."""

    def __init__(
        self, path: Path, lead: tuple[int, ...], most: tuple[int, int], key: str, node: Part, edge: Part | None
    ) -> None:
        """Args:
        key: of the configuration, which sets the bound.
        node, edge: each with its bound at the end of its lead; no edge where the space has none.
        """
        self.path, self.most, self.key, self.node, self.edge = path, most, key, node, edge
        one = ((most[0],), (0,))
        parts: dict[str | int, Part] = {
            "num_nodes": NumbersPart((*path, "num_nodes"), "length", INTEGER, lead, (), *one),
            "nodes": node,
        }
        if edge is not None:
            # -1: none are given, which is not the same as an empty array of them.
            parts["num_edges"] = NumbersPart((*path, "num_edges"), "length", INTEGER, lead, (), (most[1],), (0,))
            parts["edges"] = edge
            links = np.dtype(np.int32)
            parts["edge_links"] = NumbersPart((*path, "edge_links"), "links", links, (*lead, most[1]), (2,), *one)
        self.record = Record(path, parts, None)
        self.dtype = self.record.dtype

    def write(self, views: Views) -> Write:
        arrays = list(flatten(views))

        def write(index: Index, element: Any) -> None:
            if not isinstance(element, GraphInstance):
                raise Misfit(f"{type(element).__name__}{place(self.path)} where a GraphInstance is declared")
            at = deeper(index)
            nodes = self.node.rows_in(element.nodes)
            if element.edges is not None and self.edge is None:
                raise Misfit(f"edges{place(self.path)} where none are declared")
            edges = -1 if self.edge is None or element.edges is None else self.edge.rows_in(element.edges)
            if nodes > self.most[0]:
                raise _overflow(nodes, "nodes", self)
            if edges > self.most[1]:
                raise _overflow(edges, "edges", self)
            clear(arrays, index)
            self.node.pack(select(views["nodes"], (*at, slice(0, nodes))), element.nodes, choices=True)
            views["num_nodes"][index] = nodes
            if self.edge is not None:
                views["num_edges"][index] = edges
                if edges >= 0:
                    self.edge.pack(select(views["edges"], (*at, slice(0, edges))), element.edges, choices=True)
                    links = self.record.parts["edge_links"]
                    links.pack(views["edge_links"][(*at, slice(0, edges))], element.edge_links)

        return write

    def reader(self, views: Views) -> Read:
        def read(index: Index) -> GraphInstance:
            at, nodes = deeper(index), int(views["num_nodes"][index])
            edges = int(views["num_edges"][index]) if self.edge is not None else -1
            own = self.node.batch(copied(select(views["nodes"], (*at, slice(0, nodes)))))
            if self.edge is None or edges < 0:
                return GraphInstance(own, None, None)
            between = self.edge.batch(copied(select(views["edges"], (*at, slice(0, edges)))))
            return GraphInstance(own, between, views["edge_links"][(*at, slice(0, edges))].copy())

        return read


def deeper(index: Index) -> tuple[int, ...]:
    """Return an index to which an item's place can be added."""
    return index if isinstance(index, tuple) else (index,)


def clear(arrays: Sequence[Array], index: Any) -> None:
    """Zero each array at an index."""
    for array in arrays:
        array[index] = "" if array.dtype.kind == "U" else 0


def _overflow(count: int, what: str, part: "Items | Graph") -> Misfit:
    """More came than the bound holds."""
    return Misfit(f"{count} {what}{place(part.path)} where {part.most} at most are declared; raise {part.key}")
