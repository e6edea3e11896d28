"""populora_plugins/cluster/README.md: every snippet is one that the project, Ray or Kubernetes would take."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import yaml
from test_docs import fenced
from test_planning_memory import QWEN2_5_7B

from populora_core.config.load import Config
from populora_core.planning.memory import GB, ModelShape, Workload, estimate, shape_of
from populora_core.support import owner
from populora_core.support.shipped import REPOSITORY

PAGE = (REPOSITORY / "populora_plugins" / "cluster" / "README.md").read_text()
CLUSTER = REPOSITORY / "configs" / "cluster"
IMAGE = "REGISTRY/populora:TAG"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CLUSTER / "raycluster.yaml").read_text()))


def template() -> dict[str, Any]:
    return json.loads((CLUSTER / "prefect-job-template.json").read_text())


def test_the_page_shows_every_setting_of_a_cluster() -> None:
    shown = {key for text in fenced(PAGE, "toml") for key in tomllib.loads(text).get("compute", {})}
    assert {"backend", "address", "shards", "shard_cpus", "shard_gpus", "shard_seconds"} <= shown
    assert {"file", "s3"} == {
        url.split("://")[0] for url in re.findall(r'^url = "(\S+)"', PAGE, re.MULTILINE)
    }
    assert isinstance(Config().compute.shards, int)


def test_deployments_on_kubernetes_differ_from_ours_in_pool_and_place_alone() -> None:
    (snippet,) = map(yaml.safe_load, fenced(PAGE, "yaml"))
    ours = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())
    entrypoints = {each["name"]: each["entrypoint"] for each in ours["deployments"]}
    for deployment in snippet["deployments"]:
        assert deployment["entrypoint"] == entrypoints[deployment["name"]]
        assert deployment["work_pool"]["job_variables"].keys() <= template()["variables"]["properties"].keys()
    assert list(snippet["pull"][0]) == list(ours["pull"][0])
    assert f"--type kubernetes --base-job-template configs/cluster/{'prefect-job-template.json'}" in PAGE


def test_the_ray_cluster_has_a_token_a_pin_and_one_gpu_a_worker() -> None:
    cluster, policy = documents()
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert re.fullmatch(r"\d+\.\d+\.\d+", cluster["spec"]["rayVersion"])
    head, (workers,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    for group in (head, workers):
        (container,) = group["template"]["spec"]["containers"]
        token = {each["name"]: each for each in container["env"]}
        assert token["RAY_AUTH_MODE"]["value"] == "token"
        assert token["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "auth_token"
        assert container["image"] == IMAGE
        mounted = {each["name"] for each in container["volumeMounts"]}
        assert mounted <= {each["name"] for each in group["template"]["spec"]["volumes"]}
        assert "models" in mounted
    (worker,) = workers["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert policy["spec"]["podSelector"]["matchLabels"] == {"ray.io/cluster": cluster["metadata"]["name"]}


def test_a_prefect_job_joins_the_cluster_and_uses_every_variable() -> None:
    found = template()
    text = json.dumps(found["job_configuration"])
    used = set(re.findall(r"{{ (\w+) }}", text))
    assert used == found["variables"]["properties"].keys()
    job = found["job_configuration"]["job_manifest"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "ray start --address={{ head }} --num-cpus=0" in container["command"][-2]
    allowed = documents()[1]["spec"]["ingress"][0]["from"]
    labels = [each["podSelector"]["matchLabels"] for each in allowed]
    assert job["spec"]["template"]["metadata"]["labels"] in labels


def test_what_a_pod_makes_and_remembers_lies_on_the_volume() -> None:
    (job,) = template()["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    (head,) = documents()[0]["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    for container in (job, head):
        places = {each["mountPath"] for each in container["volumeMounts"] if each["name"] == "runs"}
        assert places == {"/runs", "/opt/populora/runs"}, "the second is where forms put a run"
    (folder,) = re.findall(rf"--from-literal={owner.FOLDER}=(/runs/\S+)", PAGE)
    assert {"name": owner.FOLDER, "value": folder} in head["env"]


def test_names_of_images_registries_and_secrets_are_placeholders() -> None:
    text = PAGE + "".join(path.read_text() for path in CLUSTER.iterdir())
    assert {IMAGE} == set(re.findall(r"\S+/populora:\w+", text.replace("`", " ").replace('"', " ")))
    literals = re.findall(r"--from-literal=\w*(?:TOKEN|token|KEY)\w*=(\S+)", text)
    assert literals
    assert all(value.startswith(("...", '"$')) for value in literals)


def test_what_is_said_of_sizes_is_what_the_shapes_give() -> None:
    shape = shape_of(QWEN2_5_7B, rank=32)
    assert f"{12 * shape.adapter / GB:.2f} GB a member" in PAGE
    assert f"1,000 adapters of {4 * shape.adapter / 1e6:.0f} MB" in PAGE
    assert f"{2 * 1000 * 4 * shape.adapter / 5e9:.0f} s at 5 GB/s" in PAGE
    fitting = max(n for n in range(1, 200) if needed(shape, n) <= 80 * GB)
    assert re.search(rf"some\s+{fitting // 10 * 10} adapters of rank 32 on a 7B in 80 GB", PAGE)


def needed(shape: ModelShape, members: int) -> int:
    return estimate(shape, Workload(members, base_bytes=2, update_tokens=8192, checkpointing=True)).shared
