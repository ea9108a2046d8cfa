"""Pool that opens on demand, so that everything else can be checked before any worker starts."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from paddock.algos.pool.serial import SerialPool


class LatePool:
    """Placeholder for the pool that a recipe's `open` will make."""

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
    def in_process(self) -> bool:
        """Whether tasks run in this process, one after the other."""
        return isinstance(self._recipe, SerialPool)

    def describe(self) -> str:
        """Describe in one line the workers there are, or would be."""
        return (self._pool or self._recipe).describe()

    def close(self) -> None:
        """Release the workers; may be called twice, and before `open`."""
        if self._pool is not None:
            self._pool.close()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the pool that was opened."""
        pool = self.__dict__.get("_pool")
        if pool is None:
            raise AttributeError(f"the pool is used before it was opened, for its {name}")
        return getattr(pool, name)
