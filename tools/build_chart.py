"""The Helm chart, in build/helm: what ``kubectl kustomize`` says of the overlays, with values in some places.

1. Both overlays are rendered by kubectl. Each becomes a template, and one of them is used.
2. What a value may change is replaced by its expression; everything else stays as it was rendered. With the
   default values the chart therefore says what the overlays say, and a test compares them.
3. Dashboards and rules have braces of their own, so they are files of the chart and no templates.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "deploy/helm"
KUSTOMIZE: Final = ROOT / "deploy/kustomize"
NAMESPACE: Final = "nvshare-system"
IMAGE: Final = "nvshare/nvshare"
Json = dict[str, Any]

_MARK: Final = re.compile(r"""(?:'|")?<<(.*?)>>(?:'|")?""")
_BLOCK: Final = re.compile(r"^ *[\w.]+: <<block (.*?)>>$", re.MULTILINE)
_IMAGE: Final = 'printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion)'
_OF_SETTINGS: Final = {
    "NVSHARE_VIRTUAL_DEVICES": ".Values.devicePlugin.virtualDevices | quote",
    "NVSHARE_ALLOCATION_POLICY": ".Values.devicePlugin.allocationPolicy",
    "NVSHARE_SIM": ".Values.simulation.cards",
}


def rendered(kubectl: str, directory: Path) -> list[Json]:
    """What kubectl makes of a kustomization."""
    done = subprocess.run([kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _with_values(value: Any) -> Any:
    """The release's namespace wherever there is one."""
    if isinstance(value, dict):
        return {
            name: "<<.Release.Namespace>>"
            if name == "namespace" and inner == NAMESPACE
            else _with_values(inner)
            for name, inner in value.items()
        }
    return [_with_values(inner) for inner in value] if isinstance(value, list) else value


def _set_pod(pod: Json) -> None:
    pod["tolerations"] = "<<block .Values.tolerations>>"
    pod["nodeSelector"] = "<<block .Values.nodeSelector>>"
    pod["runtimeClassName"] = "<<block .Values.runtimeClassName>>"
    for container in pod["containers"]:
        repository, _, _ = container["image"].partition(":")
        assert repository == IMAGE, container["image"]
        container["image"] = f"<<{_IMAGE}>>"
        container["imagePullPolicy"] = "<<.Values.image.pullPolicy>>"
        for variable in container["env"]:
            if variable["name"] in _OF_SETTINGS:
                variable["value"] = f"<<{_OF_SETTINGS[variable['name']]}>>"


def _expressions(text: str) -> str:
    """Marks become expressions of Helm; one of a block leaves out its key if there is nothing."""

    def block(match: re.Match[str]) -> str:
        name = match[0].split(":")[0]
        return f"{{{{- with {match[1]} }}}}\n{name}: {{{{ toJson . }}}}\n{{{{- end }}}}"

    return _MARK.sub(lambda match: f"{{{{ {match[1]} }}}}", _BLOCK.sub(block, text))


def template(documents: list[Json], condition: str) -> str:
    parts = []
    for document in documents:
        if document["kind"] == "Namespace":
            document["metadata"]["name"] = "<<.Release.Namespace>>"
        document = _with_values(document)
        if document["kind"] == "DaemonSet":
            _set_pod(document["spec"]["template"]["spec"])
        text = _expressions(yaml.safe_dump(document, sort_keys=False, width=1_000_000))
        if document["kind"] == "Namespace":
            text = f"{{{{- if .Values.namespace.create }}}}\n{text}{{{{- end }}}}\n"
        parts.append(text)
    return f"{{{{- if {condition} }}}}\n" + "---\n".join(parts) + "{{- end }}\n"


def _monitoring(chart: Path) -> None:
    """The component's files, as they are, and a template that brings them in."""
    files = chart / "files"
    files.mkdir()
    for path in sorted((KUSTOMIZE / "components/monitoring").glob("*.yaml")):
        if path.name != "kustomization.yaml":
            shutil.copy(path, files / path.name)
    lines = ["{{- if .Values.monitoring.enabled }}"]
    for path in sorted(files.iterdir()):
        lines += [
            "---",
            f'{{{{ .Files.Get "files/{path.name}" | replace "namespace: {NAMESPACE}" '
            '(printf "namespace: %s" .Release.Namespace) }}',
        ]
    (chart / "templates/monitoring.yaml").write_text("\n".join([*lines, "{{- end }}", ""]))


def build(kubectl: str, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(SOURCE, target)
    simulated = ".Values.simulation.enabled"
    for name, condition in (("gpu", f"not {simulated}"), ("sim", simulated)):
        text = template(rendered(kubectl, KUSTOMIZE / "overlays" / name), condition)
        (target / "templates" / f"{name}.yaml").write_text(text)
    _monitoring(target)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--target", type=Path, default=ROOT / "build/helm/nvshare")
    options = parser.parse_args()
    build(options.kubectl, options.target)
    print(f"wrote {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
