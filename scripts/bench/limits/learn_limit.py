"""What the processor's arithmetic allows a learner, and what BLAS would make of it.

    python scripts/bench/limits/learn_limit.py

The limit is that of multiplications and additions that are instructions of their own: fused ones round once where two
round twice, and give other bits. A small loop (products.c) measures how many of them a core does at most,
at the width in use. The same file multiplies square matrices as the learner's layers are multiplied
(envs/native/src/simd/product.h), and SciPy's BLAS, on one thread and with fused operations, multiplies them in turn.
"""

import ctypes
import json
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import numpy as np  # noqa: E402
import scipy.linalg.cython_blas as blas  # noqa: E402
from setuptools import Extension  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from paddock.envs.errors import require  # noqa: E402
from paddock.envs.native import library  # noqa: E402
from scripts.bench.harness import Report, in_turns  # noqa: E402

WIDTHS = {"baseline": (4, []), "avx2": (8, ["-mavx2"]), "avx512": (16, ["-mavx512f", "-mavx512dq", "-mavx512vl"])}
CHAINS, ROUNDS = 12, 200_000  # of products.c; some milliseconds
SIDES = (128, 256, 512)  # of square matrices
GEMM = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)
WORTH = 1.3  # BLAS / own from which it would be worth a key

Product = Callable[[], None]


def each_cpu_seconds(call: Callable[[], None], repeats: int) -> float:
    """How much of this thread's processor time a call takes, which others on the machine do not add to."""
    started = time.thread_time()
    for _ in range(repeats):
        call()
    return (time.thread_time() - started) / repeats


def measure_peak(repeats: int = 20) -> float:
    """Floating-point operations/s of one core at most, none of them fused; the best of some tries."""
    lanes, _ = WIDTHS[library.widest()]
    sums = np.zeros(CHAINS, np.float32)
    with built() as c:
        play = partial(c.play_peak, ROUNDS, 1.0, sums.ctypes.data)
        least = min(each_cpu_seconds(play, 1) for _ in range(repeats))
    return ROUNDS * CHAINS * lanes / least


def count_operations(widths: Sequence[Sequence[int]], epochs: int) -> int:
    """Multiplications and additions that a step of a rollout costs a learner: those of matrix products alone.

    Forward, the gradient of the weights, and that of a layer's inputs, where a layer lies below it.

    Args:
        widths: of each network, from its inputs to its outputs.
        epochs: passes over a rollout.
    """
    products = 0
    for sizes in widths:
        layers = [before * after for before, after in pairwise(sizes)]
        products += 3 * sum(layers) - layers[0]
    return 2 * products * epochs


def measure_products(rounds: int) -> dict[str, Report]:
    """GFLOP/s of one core, own and BLAS in turn, and their ratio, for each side of square matrices."""
    found = {}
    with built() as c, threadpool_limits(1):
        for n in SIDES:
            random = np.random.default_rng(n)
            a, b = (random.normal(size=(n, n)).astype(np.float32) for _ in range(2))
            c_own, c_blas = np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
            own, theirs = own_product(c, a, b, c_own), blas_product(a, b, c_blas)
            repeats = max(1, 2**25 // n**3)
            own(), theirs()
            assert np.allclose(c_own, c_blas, rtol=1e-3, atol=1e-3), n
            sides = {"own": partial(each_cpu_seconds, own, repeats), "blas": partial(each_cpu_seconds, theirs, repeats)}
            seconds = in_turns(rounds, sides)
            flops = {side: [2 * n**3 / one / 1e9 for one in every] for side, every in seconds.items()}
            ratios = [theirs / ours for ours, theirs in zip(flops["own"], flops["blas"], strict=True)]
            found[str(n)] = {"own": median(flops["own"]), "blas": median(flops["blas"]), "ratio": median(ratios)}
    return found


def render_products(products: dict[str, Report], peak: float) -> str:
    """The table of products, and whether BLAS is worth it."""
    lines = [f"{'square matrices, one core':28}{'own GFLOP/s':>14}{'BLAS':>10}{'BLAS / own':>12}"]
    for side, one in products.items():
        lines.append(f"{side:28}{one['own']:14.1f}{one['blas']:10.1f}{one['ratio']:12.2f}")
    worth = [side for side, one in products.items() if one["ratio"] > WORTH]
    lines.append(f"at most {peak / 1e9:.1f} GFLOP/s without fused operations, with {library.widest()}")
    said = f"worth more than {WORTH} times own lanes at {', '.join(worth)}" if worth else f"nowhere worth {WORTH} times"
    return "\n".join([*lines, f"BLAS is {said}"])


def own_product(c: ctypes.CDLL, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Product:
    """A call that multiplies by the lanes of products.c."""
    pointers, n = [one.ctypes.data for one in (a, b, out)], len(a)
    return lambda: c.multiply(*pointers, n)


def blas_product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Product:
    """A call that multiplies by SciPy's BLAS: its C pointer, as a learner in C would take it."""
    capsule = blas.__pyx_capi__["sgemm"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    gemm = GEMM(pointer(capsule, name(capsule)))
    plain, n, one, zero = ctypes.c_char(b"n"), ctypes.c_int(len(a)), ctypes.c_float(1), ctypes.c_float(0)
    same, size = ctypes.addressof(plain), ctypes.addressof(n)
    # Its matrices lie column by column, where ours are the transposed ones: c' = b' a'.
    given = [same, same, size, size, size, ctypes.addressof(one), b.ctypes.data, size, a.ctypes.data, size]
    given += [ctypes.addressof(zero), out.ctypes.data, size]
    keep = plain, n, one, zero

    def call() -> None:
        assert keep
        gemm(*given)

    return call


def extension() -> Extension:
    """Return the settings of setup.py by which the native environments are compiled."""
    libraries: list[Extension] = runpy.run_path(str(ROOT / "setup.py"))["LIBRARIES"]
    return next(one for one in libraries if one.name == "paddock.envs.native._lanes")


@contextmanager
def built() -> Iterator[ctypes.CDLL]:
    """products.c, compiled for the instructions in use as the libraries are.

    Raises:
        ConfigError: there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    require(compiler is not None, "the arithmetic's limit needs a C compiler (cc, gcc); install gcc")
    lanes, flags = WIDTHS[library.widest()]
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "products.so")
        source = [
            f"-DLANES={lanes}",
            f"-I{ROOT / 'envs' / 'native' / 'src'}",
            str(Path(__file__).with_name("products.c")),
        ]
        command = [str(compiler), *extension().extra_compile_args, *flags, *source]
        subprocess.run([*command, "-shared", "-fPIC", "-o", target], check=True)
        c = ctypes.CDLL(target)
        c.play_peak.restype, c.play_peak.argtypes = None, [ctypes.c_int64, ctypes.c_float, ctypes.c_void_p]
        c.multiply.restype, c.multiply.argtypes = None, [*[ctypes.c_void_p] * 3, ctypes.c_int]
        yield c


if __name__ == "__main__":
    measured, most = measure_products(5), measure_peak()
    print(render_products(measured, most))
    print(json.dumps(measured))
