"""Lay out the wheel as one package, and name the C libraries that it is built with.

platform/, algos/, envs/ and conf/ become `paddock`, and paddock.py its __init__.py.

Were the folders named in pyproject.toml as package-dir, an editable install would use one of setuptools' import finders,
which come last: a folder named `paddock` in the working directory would hide the project. As it is, an editable install
is a line in a .pth file.
"""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

# The compiler may not fuse operations, so that results are the same bits on every processor; networks call `fused` of
# lanes.h. Vectors are written by hand; GCC's vectorizer would only add fused operations (vfmaddsub) where a rotation
# invites it, which -ffp-contract=off does not forbid it. Clang knows both names.
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-tree-vectorize", "-fno-tree-slp-vectorize"]
LANES_FLAGS = [*FLAGS, "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-pthread"]
SIMD = "envs/native/src"  # whose headers the dense networks share


def library(name: str, folder: str, *include: str, flags: list[str]) -> Extension:
    """Return a shared library of all C sources in a folder, which ctypes loads; without a C compiler there is none."""
    headers = [header for each in (folder, *include) for header in find(each, "*.h")]
    return Extension(
        name,
        find(folder, "*.c"),
        depends=headers,
        include_dirs=[*include],
        extra_compile_args=flags,
        extra_link_args=["-pthread"] if "-pthread" in flags else [],
        optional=True,
    )


def find(folder: str, pattern: str) -> list[str]:
    """Return the files below a folder, in an order that does not depend on the disk."""
    root = Path(__file__).parent
    return sorted(path.relative_to(root).as_posix() for path in (root / folder).rglob(pattern))


LIBRARIES = [
    library("paddock.envs.native._lanes", SIMD, SIMD, flags=LANES_FLAGS),
    library("paddock.algos.networks.dense._dense", "algos/networks/dense/src", SIMD, flags=LANES_FLAGS),
    library("paddock.algos.learning.replay._replay", "algos/learning/replay/src", flags=FLAGS),
]


class BuildPy(build_py):
    """Reads `paddock` from platform/, and each other package from the folder that has its name."""

    def finalize_options(self) -> None:
        """Add those folders to `package_dir`."""
        super().finalize_options()
        folders = {f"paddock.{name}": name for name in ("algos", "envs", "conf")}
        self.package_dir = {**self.package_dir, **folders, "paddock": "platform"}

    def get_source_files(self) -> list[str]:
        """Return what the source distribution holds."""
        return [*super().get_source_files(), "paddock.py"]

    def run(self) -> None:
        """Build, and put paddock.py in the place of platform/__init__.py."""
        super().run()
        if not self.editable_mode:
            # Not self.copy_file, which skips a file that is older than the one it replaces.
            shutil.copyfile("paddock.py", Path(self.build_lib, "paddock", "__init__.py"))


if __name__ == "__main__":  # tests read LIBRARIES
    setup(cmdclass={"build_py": BuildPy}, ext_modules=LIBRARIES)
