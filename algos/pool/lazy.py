"""Pool that opens on demand, so that everything else is checked before workers start."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from paddock.algos.pool.serial import SerialPool


class LazyPool:
    """Proxy of a pool that a recipe's `open` creates."""

    def __init__(self, recipe: Any) -> None:
        self._recipe = recipe
        self._pool: Any = None

    def open(self, imports: Collection[str], folder: Path | None = None) -> None:
        """Start workers that can import these packages, or connect to them; logs go to `folder`; raise PoolError."""
        self._pool = self._recipe.open(imports, folder)

    @property
    def in_process(self) -> bool:
        """True if tasks run sequentially in this process."""
        return isinstance(self._recipe, SerialPool)

    def describe(self) -> str:
        """Describe the pool's workers, present or planned, in one line."""
        return (self._pool or self._recipe).describe()

    def close(self) -> None:
        """Release the workers; may be called twice, and before `open`."""
        if self._pool is not None:
            self._pool.close()

    def __getattr__(self, name: str) -> Any:
        pool = self.__dict__.get("_pool")
        if pool is None:
            raise AttributeError(f"open the pool before using its {name}")
        return getattr(pool, name)
