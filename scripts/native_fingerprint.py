"""What every set of instructions computes of the inputs of the two fingerprint.c, as library.RECORDED of each.

    python scripts/native_fingerprint.py

It prints what `baseline` computes, to be pasted into envs/native/library.py and algos/networks/dense/library.py (where
LEARNING is called RECORDED) after a change of the arithmetic that is meant, and returns 1 where another set computes
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
    for name in library.available():
        started = time.perf_counter()
        played[name] = {task: c.fingerprint(name.encode(), task.encode()) for task in library.RECORDED}
        played[name]["learning"] = dense_library.load().fingerprint_dense(name.encode())
        milliseconds[name] = 1000 * (time.perf_counter() - started)
    print("RECORDED = {")
    for task in library.RECORDED:
        print(f'    "{task}": 0x{played[MEANT][task]:016x},')
    print("}")
    print(f"LEARNING = 0x{played[MEANT]['learning']:016x}")
    for name, bits_of in played.items():
        others = [task for task, bits in bits_of.items() if bits != played[MEANT][task]]
        verdict = f"other bits in {', '.join(others)}" if others else "the same bits"
        print(f"# {name}: {milliseconds[name]:.1f} ms, {verdict}")
    return int(any(bits_of != played[MEANT] for bits_of in played.values()))


if __name__ == "__main__":
    sys.exit(main())
