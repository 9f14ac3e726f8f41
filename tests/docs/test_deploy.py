"""The files of `deploy/`: manifests that Kubernetes takes, commands that pairbus understands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.docs.pages import ROOT
from tests.docs.test_blocks import understand

DEPLOY = ROOT / "deploy"
MANIFESTS = [
    pytest.param(manifest, id=f"{path.name}-{manifest['kind']}")
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifest_is_valid_by_the_schema_of_kubernetes(manifest):
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def pods(node: Any) -> Iterator[dict[str, Any]]:
    """The pod specifications anywhere in a manifest."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for value in node.values():
            yield from pods(value)


PODS = [pod for parameters in MANIFESTS for pod in pods(parameters.values[0])]


def test_every_command_of_a_pod_is_understood():
    commands = [container["args"] for pod in PODS for container in pod["containers"]]
    assert {words[0] for words in commands} == {"syphon", "dashboard", "check"}
    for words in commands:
        understand(list(words))


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["containers"][0]["name"])
def test_pod_refers_to_what_the_folder_defines(pod):
    defined = {(m.values[0]["kind"], m.values[0]["metadata"]["name"]) for m in MANIFESTS}
    (container,) = pod["containers"]
    wanted = {("Secret", source["secretRef"]["name"]) for source in container["envFrom"]}
    for variable in container["env"]:
        if "valueFrom" in variable:
            wanted.add(("Secret", variable["valueFrom"]["secretKeyRef"]["name"]))
    for volume in pod["volumes"]:
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            wanted.add(("PersistentVolumeClaim", claim))
    assert wanted <= defined
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["containers"][0]["name"])
def test_pod_is_restricted(pod):
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probe_of_the_syphon_looks_at_its_status_file(tmp_path):
    from pairbus.syphon.state import StateDirectory

    (syphon,) = [pod for pod in PODS if pod["containers"][0]["name"] == "syphon"]
    container = syphon["containers"][0]
    variables = {one["name"]: one["value"] for one in container["env"]}
    file = Path(variables["PAIRBUS_CHECKPOINT"]) / "status.json"
    for probe in ("startupProbe", "livenessProbe"):
        assert f"find {file} " in container[probe]["exec"]["command"][-1]
    StateDirectory(tmp_path).write("status.json", {})
    assert (tmp_path / "status.json").exists()


def test_image_runs_pairbus_as_a_user_of_its_own():
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if re.match("[A-Z]", line)]
    last = dict(steps)
    assert last["USER"] == str(PODS[0]["securityContext"]["runAsUser"])
    assert yaml.safe_load(last["ENTRYPOINT"]) == ["pairbus"]
    understand(yaml.safe_load(last["CMD"]))
    copied = [rest.split()[:-1] for name, rest in steps if name == "COPY" and "--from" not in rest]
    for name in [name for names in copied for name in names]:
        assert (ROOT / name).exists(), f"the image copies {name}"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert kept == {name for names in copied for name in names}
