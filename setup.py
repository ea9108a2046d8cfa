"""What pyproject.toml cannot say: a wheel keeps platform/ and conf/ under _paddock/, where they can shadow nothing.

Were it said there, as package-dir, an editable install would reach the project by a finder of setuptools', which Python
asks after its own: any folder called `paddock`, `algos` or `envs` in the working directory would then hide it. So it
reaches the project by a line of a .pth file, and a folder without __init__.py comes after a module.
"""

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Finds the packages of a wheel that lie in folders of other names."""

    def finalize_options(self) -> None:
        """Add them to `package-dir`."""
        super().finalize_options()
        ours = {"_paddock.platform": "platform", "_paddock.conf": "conf", "paddock-stubs": "platform/stubs"}
        self.package_dir = {**self.package_dir, **ours}


setup(cmdclass={"build_py": BuildPy})
