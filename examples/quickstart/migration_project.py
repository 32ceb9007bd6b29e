"""The project that the agent works on: a copy of `project/`, compared with the original on disk."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scripted_model import OLD_IMPORT

ORIGINAL = Path(__file__).resolve().parent / "project"


@dataclass(frozen=True)
class Project:
    """The copy in `folder`, compared with the original."""

    folder: Path

    @classmethod
    def copied_to(cls, folder: Path) -> "Project":
        """A fresh copy of the original."""
        shutil.copytree(ORIGINAL, folder, ignore=shutil.ignore_patterns("__pycache__"))
        return cls(folder)

    def modules(self) -> list[str]:
        """The modules that must move: those that import the old interface."""
        found = sorted((ORIGINAL / "shop").glob("*.py"))
        return [f"shop/{file.name}" for file in found if OLD_IMPORT.search(file.read_text(encoding="utf-8"))]

    def others(self) -> list[str]:
        """All other files of the original; none of them may change."""
        return sorted(_files(ORIGINAL) - set(self.modules()))

    def moved(self) -> set[str]:
        """The modules that are different from the original on disk now."""
        return {path for path in self.modules() if not self._same(path)}

    def stamps(self) -> dict[str, tuple[int, int]]:
        """For each moved module what changes whenever it is written again: inode, and time in nanoseconds."""
        stats = {path: (self.folder / path).stat() for path in self.moved()}
        return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}

    def strays(self) -> list[str]:
        """Files outside the task that were changed, added or removed."""
        changed = {path for path in self.others() if not self._same(path)}
        return sorted(changed | (_files(self.folder) ^ _files(ORIGINAL)))

    def tests_pass(self) -> bool:
        """Whether the project's own tests pass on the copy."""
        command = [sys.executable, "-B", "-m", "unittest", "discover", "-t", ".", "tests"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, timeout=60).returncode == 0

    def _same(self, path: str) -> bool:
        copy = self.folder / path
        return copy.is_file() and copy.read_bytes() == (ORIGINAL / path).read_bytes()


def _files(folder: Path) -> set[str]:
    found = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(folder).as_posix() for file in found}
