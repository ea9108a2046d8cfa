"""Fused multiply-adds of networks alone: they round once where two operations round twice, and give other bits."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from compiled import COMPILER, build, extension, native  # noqa: F401, a fixture

from paddock.algos.networks.dense import library as dense_library
from paddock.envs.native import library

FUSED = re.compile(r"\t(vfn?m(add|sub)\w*|fn?ml[as]\w*|fn?m(add|sub)\w*)\b")  # of x86-64, then of AArch64
CROSS_COMPILER, CROSS_OBJDUMP = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump"
# GCC 12 vectorizes it with vfmaddsub, whatever -ffp-contract says.
ROTATION = """
void rotate(float *restrict out, const float *restrict in, float s, float c)
{
    for (int i = 0; i < 64; i += 2) {
        out[i] = (c * in[i] - s * in[i + 1]) + 1.0f;
        out[i + 1] = (s * in[i] + c * in[i + 1]) + 2.0f;
    }
}
"""


def fused(path: Path, objdump: str = "objdump") -> list[str]:
    """The fused instructions of a library or an object."""
    if shutil.which(objdump) is None:
        pytest.skip(f"there is no {objdump} (binutils)")
    listing = subprocess.run([objdump, "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    assert "\tret" in listing.stdout, "objdump shows no code"
    return [line.strip() for line in listing.stdout.splitlines() if FUSED.search(line)]


def compiled_rotation(folder: Path, compiler: str | None, *given: str) -> Path:
    """An object of ROTATION."""
    if compiler is None or shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler ({compiler or 'cc, gcc'})")
    target = folder / "rotation.o"
    subprocess.run([compiler, *given, "-x", "c", "-", "-c", "-o", target], input=ROTATION.encode(), check=True)
    return target


def processor_flags(compiler: str | None) -> list[str]:
    """What lets a compiler use fused instructions, if its processor needs to be told."""
    machine = subprocess.run([compiler or "cc", "-dumpmachine"], capture_output=True, text=True).stdout
    return ["-mavx2", "-mfma"] if machine.startswith("x86_64") else []


def functions_with_fused(path: Path) -> set[str]:
    """The names of the functions that have fused instructions."""
    if shutil.which("objdump") is None:
        pytest.skip("there is no objdump (binutils)")
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    blocks = re.split(r"^[0-9a-f]+ <(\w+)[^>]*>:$", listing.stdout, flags=re.MULTILINE)
    return {name for name, code in zip(blocks[1::2], blocks[2::2], strict=True) if FUSED.search(code)}


def test_only_policies_of_the_environments_are_fused() -> None:
    folders = (Path(library.__file__).parent / "src" / name for name in ("policies", "simd"))
    policies = "".join(path.read_text() for folder in folders for path in folder.glob("*.h"))
    found = functions_with_fused(library.built()[0])
    assert "product" in found and all(re.search(rf"\b{name}\(", policies) for name in found), found


def test_learners_fuse_only_where_the_source_says_so() -> None:
    [path, *_] = library.find_built(dense_library.FOLDER, "_dense")
    assert fused(path) and all(re.search(r"\tvfmadd\d+ps|\tfmla", line) for line in fused(path))


def test_only_other_compiler_flags_fuse_operations(tmp_path: Path) -> None:
    for compiler, objdump in ((COMPILER, "objdump"), (CROSS_COMPILER, CROSS_OBJDUMP)):
        if compiler is None or shutil.which(compiler) is None or shutil.which(objdump) is None:
            continue
        more = processor_flags(compiler)
        assert fused(compiled_rotation(tmp_path, compiler, "-O3", *more, "-ffp-contract=fast"), objdump)
        assert fused(compiled_rotation(tmp_path, compiler, *extension().extra_compile_args, *more), objdump) == []
