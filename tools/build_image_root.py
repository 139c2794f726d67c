"""Runs the stages of the Dockerfile without a container engine: ``python -m tools.build_image_root TARGET``.

1. What a stage begins with, an image of a registry, is replaced by this machine's own root. So it is shown
   that the commands work and what they make, and not what the image is based on.
2. A stage is an overlay over that root, on a file system in memory, in a mount namespace that ends with this
   program. Its commands run in a chroot with the variables of the stage alone.
3. COPY takes what git tracks, as .dockerignore does. TARGET/root gets what the stages have copied or made
   under /opt, and TARGET/STAGE.json how the image is started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCKERFILE: Final = ROOT / "Dockerfile"
SCRATCH: Final = Path("/mnt")
KEPT: Final = "opt"
"""The directory whose content a stage leaves behind."""
_IN_NAMESPACE: Final = "NVSHARE_IMAGE_NAMESPACE"


class DockerfileError(Exception):
    """A line that this program cannot carry out."""


@dataclass
class Stage:
    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Settings:
    """What an image is started with."""

    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    def copy(self) -> Settings:
        return Settings(**json.loads(json.dumps(vars(self))))


def instructions(text: str) -> list[tuple[str, str]]:
    """Keyword and the rest, with continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    pairs = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(keyword.upper(), rest.strip()) for keyword, rest in pairs]


def stages(text: str) -> list[Stage]:
    found: list[Stage] = []
    for keyword, rest in instructions(text):
        if keyword == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(name, base))
        elif found:
            found[-1].steps.append((keyword, rest))
        elif keyword != "ARG":
            raise DockerfileError(f"{keyword} before the first FROM")
    return found


class Builder:
    """Makes one stage after the other; each is a directory with its overlay."""

    def __init__(self, known: list[Stage]) -> None:
        self._stages = {stage.name: stage for stage in known}
        self.roots: dict[str, Path] = {}
        self.settings: dict[str, Settings] = {}

    def build(self, stage: Stage) -> None:
        parent = self._stages.get(stage.base)
        if parent is None and not stage.base.startswith("${"):
            raise DockerfileError(f"FROM {stage.base}: neither a stage nor an argument")
        settings = self.settings[parent.name].copy() if parent else Settings(env={"PATH": os.environ["PATH"]})
        root = self._overlay(stage.name, SCRATCH / parent.name / "upper" if parent else None)
        self.roots[stage.name], self.settings[stage.name] = root, settings
        for keyword, rest in stage.steps:
            print(f"{stage.name}: {keyword} {rest}"[:150], flush=True)
            getattr(self, f"_{keyword.lower()}")(root, settings, rest)

    def _overlay(self, name: str, below: Path | None) -> Path:
        place = SCRATCH / name
        for part in ("upper", "work", "root"):
            (place / part).mkdir(parents=True)
        if below is not None:
            shutil.copytree(below, place / "upper", symlinks=True, dirs_exist_ok=True)
        options = f"lowerdir=/,upperdir={place}/upper,workdir={place}/work"
        root = place / "root"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", root], check=True)
        for mounted in ("proc", "dev", "sys"):
            subprocess.run(["mount", "--rbind", f"/{mounted}", root / mounted], check=True)
        return root

    # ---- instructions ---------------------------------------------------------------------------

    def _run(self, root: Path, settings: Settings, command: str) -> None:
        kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_", "HTTP"))}
        environment = {"HOME": "/root", **kept, **settings.env}
        script = f"cd {shlex.quote(settings.workdir)} && {command}"
        subprocess.run(["chroot", root, "/bin/sh", "-c", script], env=environment, check=True)

    def _copy(self, root: Path, settings: Settings, rest: str) -> None:
        words = shlex.split(rest)
        origin = ROOT
        if words[0].startswith("--from="):
            origin = self.roots[words.pop(0).removeprefix("--from=")]
        *sources, target = words
        into = root / (Path(settings.workdir) / target).as_posix().lstrip("/")
        for source in sources:
            if origin is ROOT:
                self._copy_tracked(source, into)
            else:
                shutil.copytree(origin / source.lstrip("/"), into, symlinks=True, dirs_exist_ok=True)

    def _copy_tracked(self, source: str, into: Path) -> None:
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", source],
            capture_output=True,
            check=True,
        )
        names = [name for name in listing.stdout.decode().split("\0") if name]
        if not names:
            raise DockerfileError(f"COPY {source}: git tracks no such file")
        for name in names:
            target = into / (Path(name).relative_to(source) if name != source else Path(name).name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)

    def _workdir(self, root: Path, settings: Settings, rest: str) -> None:
        settings.workdir = rest
        (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _env(self, _root: Path, settings: Settings, rest: str) -> None:
        name, _, value = rest.partition("=")
        settings.env[name] = f"/opt/nvshare/bin:{settings.env['PATH']}" if name == "PATH" else value

    def _user(self, _root: Path, settings: Settings, rest: str) -> None:
        settings.user = rest

    def _expose(self, _root: Path, settings: Settings, rest: str) -> None:
        settings.ports += map(int, rest.split())

    def _entrypoint(self, _root: Path, settings: Settings, rest: str) -> None:
        settings.entrypoint, settings.command = json.loads(rest), []

    def _cmd(self, _root: Path, settings: Settings, rest: str) -> None:
        settings.command = json.loads(rest)


def build(target: Path) -> None:
    """In a mount namespace of our own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6g", "tmpfs", SCRATCH], check=True)
    known = stages(DOCKERFILE.read_text())
    builder = Builder(known)
    for stage in known:
        builder.build(stage)
    shutil.rmtree(target, ignore_errors=True)
    last = known[-1].name
    shutil.copytree(SCRATCH / last / "upper" / KEPT, target / "root" / KEPT, symlinks=True)
    for name, settings in builder.settings.items():
        content: dict[str, Any] = vars(settings)
        (target / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    target = parser.parse_args().target.absolute()
    if os.environ.get(_IN_NAMESPACE):
        build(target)
        return 0
    again = [sys.executable, "-m", "tools.build_image_root", str(target)]
    unshared = ["unshare", "--mount", "--propagation", "private", "--"]
    return subprocess.run([*unshared, *again], env={**os.environ, _IN_NAMESPACE: "1"}, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
