"""What every set of instructions computes of the inputs of the two fingerprint.c, and whether that is what is recorded.

    python scripts/native_fingerprint.py

It prints what `baseline` computes, a line for each task or part. A number that differs from the recorded one is to be
pasted after a change of the arithmetic that is meant: of a task where its C code says `.recorded`, of others into
envs/native/library.py, and `learning` into algos/networks/dense/library.py. It returns 1 where another set computes
something else. That the new numbers are right is for the tests against Box2D, Gymnasium and torch to say.
"""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from paddock.algos.networks.dense import library as dense_library  # noqa: E402
from paddock.envs.native import library  # noqa: E402

MEANT = "baseline"


def main() -> int:
    """Print the numbers, and the milliseconds that each set took."""
    c, played, milliseconds = library.load(), {}, {}
    recorded = library.recorded_numbers() | {"learning": dense_library.RECORDED}
    for name in library.available():
        started = time.perf_counter()
        played[name] = {part: int(c.fingerprint(name.encode(), part.encode())) for part in recorded}
        played[name]["learning"] = int(dense_library.load().fingerprint_dense(name.encode()))
        milliseconds[name] = 1000 * (time.perf_counter() - started)
    for part, number in played[MEANT].items():
        other = f"  # recorded is 0x{recorded[part]:016x}" if number != recorded[part] else ""
        print(f"{part} 0x{number:016x}{other}")
    for name, bits_of in played.items():
        others = [part for part, bits in bits_of.items() if bits != played[MEANT][part]]
        verdict = f"other bits in {', '.join(others)}" if others else "the same bits"
        print(f"# {name}: {milliseconds[name]:.1f} ms, {verdict}")
    return int(any(bits_of != played[MEANT] for bits_of in played.values()))


if __name__ == "__main__":
    sys.exit(main())
