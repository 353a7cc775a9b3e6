"""The files of deploy/: they agree with `promptools serve`, with each other, and with the linters of their formats."""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from ipaddress import ip_address, ip_network
from pathlib import Path

import environments
import pytest
import yaml

from promptools.cli import build_parser, serve_command
from promptools.cli.serve_command import METRICS_KEY_VARIABLE
from promptools.profiles import load_config
from promptools.proxy.access import API_KEY_VARIABLE
from promptools.proxy.operations import Health, MetricsPage
from promptools.proxy.shared_state import PASSWORD_VARIABLE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/promptools"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = DEPLOY / "systemd/promptools.service"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
COMPOSE = sorted(DEPLOY.glob("compose.*.yaml"))
PORT = "8100"
NAMES = [path.name for path in COMPOSE]

lint = pytest.mark.__getattr__("deploy-lint")


def serve_options(words):
    """Parse options of `promptools serve`; a wrong one is an error."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve_command.add(parser)
    return parser.parse_args(list(words))


def instruction(name):
    return re.findall(rf"^{name} (.+(?:\n +.+)*)", DOCKERFILE, re.MULTILINE)


def entrypoint():
    """The options that the image begins with."""
    command = json.loads(instruction("ENTRYPOINT")[0])
    assert command[:2] == ["promptools", "serve"]
    return command[2:]


def resources(text):
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def manifests():
    return {key: each for path in MANIFESTS for key, each in resources(path.read_text(encoding="utf-8")).items()}


# -- they agree


def test_the_image_listens_where_it_is_exposed_and_probed():
    options = serve_options(entrypoint())
    assert str(options.port) == PORT == instruction("EXPOSE")[0]
    assert options.host == "0.0.0.0"
    assert f"http://127.0.0.1:{PORT}/healthz" in instruction("HEALTHCHECK")[0]


def test_a_wheel_can_be_built_of_what_the_image_copies(tmp_path):
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [word for line in instruction("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert {f"!{name}" for name in copied} == {line for line in ignored if line.startswith("!")}
    for name in copied:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert "promptools/_providers/servers/vllm.toml" in zipfile.ZipFile(wheel).namelist()


def test_the_extras_of_the_image_are_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(instruction("ARG")[0].removeprefix("EXTRAS=").split(",")) <= set(extras)


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_compose(path):
    file = yaml.safe_load(path.read_text(encoding="utf-8"))
    proxy = file["services"]["promptools"]
    options = serve_options([*entrypoint(), *proxy["command"]])
    (server,) = proxy["depends_on"]
    assert options.base_url.startswith(f"http://{server}:")
    assert proxy["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert (path.parent / proxy["build"]["context"] / proxy["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert {volume.partition(":")[0] for volume in file["services"][server]["volumes"]} == set(file["volumes"])


def test_the_unit_runs_serve():
    (command,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    program, name, *words = shlex.split(command.replace("\\\n", " "))
    assert (Path(program).name, name) == ("promptools", "serve")
    assert str(serve_options(words).port) == PORT


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_unit_is_valid(tmp_path):
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/promptools/bin/promptools", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def check_deployment(deployment, config, service):
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = serve_options([*entrypoint(), *container["args"]])
    (port,) = container["ports"]
    assert port["containerPort"] == options.port
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[name]["httpGet"]
        assert probe["path"] in Health.public_paths
        assert probe["port"] == port["name"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert set(mounts) == set(volumes)
    assert Path(options.config) == mounts["config"] / "promptools.toml"
    assert volumes["config"]["configMap"]["name"] == config
    (key,) = volumes["keys"]["secret"]["items"]
    assert Path(options.api_key_file) == mounts["keys"] / key["path"]
    stops = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["spec"]["terminationGracePeriodSeconds"] >= stops + 30  # a drain takes up to half a minute


def test_the_manifests_agree():
    found = manifests()
    kustomization = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text(encoding="utf-8"))
    assert set(kustomization["resources"]) == {path.name for path in MANIFESTS}
    (generated,) = kustomization["configMapGenerator"]
    check_deployment(found["Deployment", "promptools"], generated["name"], found["Service", "promptools"])
    labels = found["Deployment", "promptools"]["spec"]["template"]["metadata"]["labels"]
    budget = found["PodDisruptionBudget", "promptools"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert budget["minAvailable"] < found["Deployment", "promptools"]["spec"]["replicas"]
    for name in generated["files"]:
        assert load_config(DEPLOY / "kubernetes" / name).warnings == ()


def test_only_the_proxy_reaches_redis():
    found = manifests()
    redis, policy = (found[kind, "promptools-redis"]["spec"] for kind in ("Deployment", "NetworkPolicy"))
    assert policy["podSelector"]["matchLabels"] == redis["template"]["metadata"]["labels"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    labels = found["Deployment", "promptools"]["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def variables(deployment):
    """The variables of a deployment's container, with the key of the Secret that each one is from."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each}


def check_redis(redis, proxy):
    """Redis has the password that the proxy sends."""
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    arguments = container["args"]
    assert arguments[arguments.index("--requirepass") + 1] == "$(REDIS_PASSWORD)"
    password, sent = variables(redis)["REDIS_PASSWORD"], variables(proxy)[PASSWORD_VARIABLE]
    assert (password["name"], password["key"]) == (sent["name"], sent["key"])
    assert not password.get("optional", False)
    assert not sent.get("optional", False)


def check_network(policy, deployment):
    """The proxy is reached on its port alone, by whom it says, and reaches no link-local address."""
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == [port["name"] for port in container["ports"]]
    assert rule["from"]
    assert {"namespaceSelector": {}} not in rule["from"]
    (egress,) = policy["egress"]
    blocks = [peer["ipBlock"] for peer in egress["to"] if "ipBlock" in peer]
    assert len(blocks) == 2
    for address in ("169.254.169.254", "fd00:ec2::254", "fe80::1"):
        for block in blocks:
            excepted = [ip_network(each) for each in block["except"]]
            reached = ip_address(address) in ip_network(block["cidr"])
            assert not reached or any(ip_address(address) in each for each in excepted)


def test_redis_has_a_password_and_the_proxy_a_policy():
    found = manifests()
    proxy = found["Deployment", "promptools"]
    check_redis(found["Deployment", "promptools-redis"], proxy)
    check_network(found["NetworkPolicy", "promptools"]["spec"], proxy)


def test_the_metrics_key_is_not_a_key_of_clients():
    keys = variables(manifests()["Deployment", "promptools"])
    assert keys[METRICS_KEY_VARIABLE]["key"] == "metrics-key"
    assert API_KEY_VARIABLE not in keys
    chart = (CHART / "templates/deployment.yaml").read_text(encoding="utf-8")
    assert METRICS_KEY_VARIABLE in chart
    assert API_KEY_VARIABLE not in chart
    for path in COMPOSE:
        environment = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]["promptools"]["environment"]
        assert METRICS_KEY_VARIABLE in environment[METRICS_KEY_VARIABLE]


def test_prometheus_scrapes_the_page_with_its_key():
    (job,) = yaml.safe_load((DEPLOY / "prometheus/promptools.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    assert (job["metrics_path"],) == MetricsPage.paths
    assert job["static_configs"][0]["targets"] == [f"localhost:{PORT}"]
    assert "credentials_file" in job["authorization"]


def test_the_versions_are_the_packages():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (container,) = manifests()["Deployment", "promptools"]["spec"]["template"]["spec"]["containers"]
    assert chart["appVersion"] == version == container["image"].partition(":")[2]


# -- the linters


@pytest.fixture(scope="module")
def linters():
    return environments.path_of("deploy-lint")


def run(*command, text=None):
    done = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=ROOT
    )
    return done.returncode, done.stdout


ALL = ("--set", "redis.enabled=true,ingress.enabled=true,serviceMonitor.enabled=true,ingress.tlsSecretName=cert")
VALUES = {"every default": (), "every option": (*ALL, "--set-json", 'environment=["VLLM_API_KEY"]')}


def render(linters, *values):
    status, text = run(linters / "helm", "template", "house", CHART, *values)
    assert status == 0, text
    return text


@lint
def test_hadolint(linters):
    assert run(linters / "hadolint", DEPLOY / "Dockerfile") == (0, "")


@lint
def test_hadolint_sees_what_is_wrong(linters, tmp_path):
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(DOCKERFILE.replace("FROM python:3.13-slim\n", "FROM python\n"), encoding="utf-8")
    assert "DL3006" in run(linters / "hadolint", wrong)[1]


@lint
@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_compose_files_are_read(linters, path):
    status, text = run(linters / "cmd", "-no-interpolation", path)
    assert status == 0, text


@lint
def test_kubernetes_knows_the_manifests(linters):
    status, text = run(linters / "kubernetes-validate", "--strict", *MANIFESTS)
    assert status == 0, text
    assert text.count(" passed ") == len(manifests())


@lint
def test_kustomize_builds_what_kubernetes_knows(linters, tmp_path):
    status, text = run(linters / "kustomize", "build", DEPLOY / "kubernetes")
    assert status == 0, text
    found = resources(text)
    (config,) = (name for kind, name in found if kind == "ConfigMap")
    check_deployment(found["Deployment", "promptools"], config, found["Service", "promptools"])
    built = tmp_path / "built.yaml"
    built.write_text(text, encoding="utf-8")
    status, output = run(linters / "kubernetes-validate", "--strict", built)
    assert status == 0, output
    assert output.count(" passed ") == len(found) == len(manifests()) + 1


@lint
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_lint(linters, values):
    status, text = run(linters / "helm", "lint", "--strict", CHART, *values)
    assert status == 0, text


@lint
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_renders_what_kubernetes_knows(linters, tmp_path, values):
    text = render(linters, *values)
    found = resources(text)
    check_deployment(found["Deployment", "house-promptools"], "house-promptools", found["Service", "house-promptools"])
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(text, encoding="utf-8")
    status, output = run(linters / "kubernetes-validate", "--strict", rendered)
    assert status == 0, output
    known = [key for key in found if key[0] != "ServiceMonitor"]  # its schema is its operator's
    assert output.count(" passed ") == len(known)


@lint
def test_the_charts_config_loads(linters, tmp_path):
    config = tmp_path / "promptools.toml"
    config.write_text(resources(render(linters))["ConfigMap", "house-promptools"]["data"]["promptools.toml"])
    assert load_config(config).default_provider == "gpu"


@lint
def test_the_charts_redis_is_the_one_in_its_config(linters):
    found = resources(render(linters, *ALL))
    config = tomllib.loads(found["ConfigMap", "house-promptools"]["data"]["promptools.toml"])
    service = found["Service", "house-promptools-redis"]
    assert (
        config["proxy"]["redis_url"] == f"redis://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/0"
    )


@lint
def test_the_chart_s_redis_has_a_password_and_its_proxy_a_policy(linters):
    found = resources(render(linters, *ALL))
    proxy = found["Deployment", "house-promptools"]
    check_redis(found["Deployment", "house-promptools-redis"], proxy)
    check_network(found["NetworkPolicy", "house-promptools"]["spec"], proxy)
    alone = resources(render(linters, "--set", "networkPolicy.enabled=false"))
    assert not [name for kind, name in alone if kind == "NetworkPolicy"]
    assert variables(alone["Deployment", "house-promptools"])[PASSWORD_VARIABLE]["optional"] is True


@lint
@pytest.mark.parametrize(
    "values", ['replicaCount="two"', 'environment=["not-a-name"]', 'image={"repository": ""}', 'config=""']
)
def test_wrong_values_are_refused(linters, values):
    status, text = run(linters / "helm", "template", "house", CHART, "--set-json", values)
    assert status != 0
    assert "values don't meet the specifications" in text


@lint
def test_redis_beside_a_proxy_table_is_refused(linters):
    status, text = run(linters / "helm", "template", "house", CHART, *ALL, "--set", "config=[proxy]")
    assert status != 0
    assert "exclude each other" in text


# The workflow that verifies a server every night.


def test_the_workflow_runs_commands_that_exist():
    workflow = yaml.safe_load((DEPLOY / "github/verify.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["verify"]["steps"]
    scripts = [step["run"].replace("$URL", "http://gpu:8000/v1") for step in steps if "run" in step]
    commands = [each for script in scripts for each in re.findall(r"promptools (verify [^;>\n]+)", script)]
    parsed = [build_parser().parse_args(shlex.split(command)) for command in commands]
    assert [each.compare for each in parsed] == [None, ["last.json", "now.json"]]
    assert (parsed[0].base_url, parsed[0].yes, parsed[0].json) == ("http://gpu:8000/v1", True, True)
    # a result is kept only after the comparison: what was lost is compared with the last good one again
    names = [step.get("name") for step in steps]
    assert names.index("Compare") < names.index("Keep the result")
    assert all("continue-on-error" not in step for step in steps)
