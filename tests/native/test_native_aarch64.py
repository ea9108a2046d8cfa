"""Another architecture computes the recorded bits: both libraries, cross-compiled, under an emulator of AArch64.

Every processor of that kind has fused instructions, which a compiler takes unless it is told not to.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from compiled import LANES, LEARNING, build, extension, native  # noqa: F401, a fixture
from test_native_fused import CROSS_COMPILER, CROSS_OBJDUMP, fused

from paddock.algos.networks.dense import library as learning
from paddock.envs.native import library

EMULATOR = "qemu-aarch64"
PACKAGES = {  # Debian's, and what of each is looked for
    "gcc-aarch64-linux-gnu": CROSS_COMPILER,
    "binutils-aarch64-linux-gnu": CROSS_OBJDUMP,
    "qemu-user": EMULATOR,
}
CONTRACTED = ["-ffp-contract=fast"]  # after -ffp-contract=off, so that it counts

LIBRARIES = {  # how each is asked for its fingerprints, and which those are
    LANES: ("fingerprint(const char *set, const char *part)", "fingerprint(set, part)", library.recorded_numbers()),
    LEARNING: ("fingerprint_dense(const char *set)", "fingerprint_dense(set)", {"learning": learning.RECORDED}),
}

# What Python does with a library elsewhere: ask for the fingerprint of each part that is named.
PROGRAM = r"""
#include <inttypes.h>
#include <stdio.h>

uint64_t DECLARED;

int main(int count, char **parts)
{
    const char *const set = "baseline";
    for (int k = 1; k < count; k++) {
        const char *const part = parts[k];
        printf("%s %016" PRIx64 "\n", part, ASKED);
    }
    return 0;
}
"""

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("native_aarch64")]


def compute(folder: Path, name: str, *flags: str) -> dict[str, int]:
    """Compile a library for AArch64 with these flags too, and return the fingerprints that it computes there."""
    lacking = [package for package, tool in PACKAGES.items() if shutil.which(tool) is None]
    if lacking:
        pytest.skip(f"AArch64 cannot be played here: install {' '.join(lacking)}")
    build(folder, CROSS_COMPILER, {Path(source).stem: flags for source in extension(name).sources}, name)
    declared, asked, recorded = LIBRARIES[name]
    program = folder / "program"
    # Linked statically, it needs no other files of that architecture.
    objects = [str(one) for one in folder.glob("*.o")]
    link = [CROSS_COMPILER, "-static", "-pthread", f"-DDECLARED={declared}", f"-DASKED={asked}", "-x", "c", "-"]
    subprocess.run([*link, "-x", "none", *objects, "-lm", "-o", program], input=PROGRAM.encode(), check=True)
    played = subprocess.run([EMULATOR, program, *recorded], capture_output=True, text=True, timeout=120, check=True)
    return {part: int(bits, 16) for part, bits in map(str.split, played.stdout.splitlines())}


@pytest.mark.parametrize("name", LIBRARIES)
def test_aarch64_computes_the_recorded_bits(name: str, tmp_path: Path) -> None:
    assert compute(tmp_path, name) == LIBRARIES[name][2]
    assert fused(next(tmp_path.glob("*.so")), CROSS_OBJDUMP) == []


@pytest.mark.parametrize("name", LIBRARIES)
def test_aarch64_would_fuse_and_compute_other_bits_if_it_were_not_told(name: str, tmp_path: Path) -> None:
    computed, recorded = compute(tmp_path, name, *CONTRACTED), LIBRARIES[name][2]
    assert computed.keys() == recorded.keys()
    assert [part for part, bits in computed.items() if bits == recorded[part]] == []
    taken = fused(tmp_path / "baseline.o", CROSS_OBJDUMP)
    print(f"{name}: NEON's lanes would hold {len(taken)} fused instructions")
    assert taken
