"""Lays out the wheel as one package: platform/, algos/, envs/ and conf/ become `paddock`, and paddock.py its __init__.py.

Were the folders named in pyproject.toml as package-dir, an editable install would use one of setuptools' import finders,
which come last: a folder named `paddock` in the working directory would hide the project. As it is, an editable install
is a line in a .pth file.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


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
            self.copy_file("paddock.py", str(Path(self.build_lib, "paddock", "__init__.py")), preserve_mode=False)


setup(cmdclass={"build_py": BuildPy})
