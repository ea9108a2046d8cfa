"""A pool that opens when it is told to, so that everything else can be checked before any worker starts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from algos.pool.broadcast import Broadcast
from algos.pool.protocol import Batch, Done, End, Pool, Stateful, Task, Value
from algos.pool.serial import SerialPool


class LatePool:
    """Stands for the pool that a recipe's `open` will make."""

    def __init__(self, recipe: Any) -> None:
        self._recipe = recipe
        self._pool: Any = None

    def open(self, imports: Collection[str], folder: Path | None = None) -> None:
        """Start the workers, or join them.

        Args:
            imports: packages that tasks will need, by their import names.
            folder: the run's, where workers may keep logs.

        Raises:
            PoolError: the scheduler is out of reach, or its workers do not match this process.
        """
        self._pool = self._recipe.open(imports, folder)

    @property
    def size(self) -> int:
        """Workers alive now."""
        return self._opened().size

    def imap_unordered(self, fn: Callable[[Task], Any], tasks: Iterable[Task], **settings: Any) -> Iterator[Done]:
        """See `algos.pool.protocol.Pool`."""
        return self._opened().imap_unordered(fn, tasks, **settings)

    def open_batch(self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **settings: Any) -> Batch:
        """See `algos.pool.protocol.Pool`."""
        return self._opened().open_batch(fn, deliver, **settings)

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """See `algos.pool.protocol.Pool`."""
        return self._opened().broadcast(value)

    def stateful(self, factory: Callable[[], Any], *arguments: Any, **settings: Any) -> Stateful:
        """See `algos.pool.protocol.Pool`."""
        return self._opened().stateful(factory, *arguments, **settings)

    def ask(self, workers: int) -> None:
        """See `algos.pool.protocol.Pool`."""
        self._opened().ask(workers)

    @property
    def in_process(self) -> bool:
        """Whether tasks run in this process, one after the other."""
        return isinstance(self._recipe, SerialPool)

    def describe(self) -> str:
        """One line on the workers there are, or would be."""
        return (self._pool or self._recipe).describe()

    def close(self) -> None:
        """Let the workers go; may be called twice, and before `open`."""
        if self._pool is not None:
            self._pool.close()

    def _opened(self) -> Pool:
        assert self._pool is not None, "the pool is used before it was opened"
        return self._pool
