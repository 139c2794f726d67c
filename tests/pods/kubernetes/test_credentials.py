"""Where the API server is and how we prove who we are: service accounts, kubeconfigs, and what is refused."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
import yaml

from nvshare.pods.kubernetes.credentials import (
    CA_BYTES_MAX,
    TOKEN_BYTES_MAX,
    Endpoint,
    find_credentials,
    is_in_cluster,
)
from nvshare.pods.kubernetes.exec_credentials import ExecCredentials
from nvshare.pods.kubernetes.kubeconfig import AccessError, Exec, read_kubeconfig
from nvshare.sim.kube_api.certificates import Authority

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


Fields = dict[str, object]


def kubeconfig(path: Path, cluster: Fields | None = None, user: Fields | None = None) -> str:
    cluster = {"server": "https://api.example:6443", **(cluster or {})}
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_a_service_account_whose_token_is_replaced(tmp_path: Path) -> None:
    assert not is_in_cluster(IN_CLUSTER, tmp_path)
    first, second = tmp_path / "..1", tmp_path / "..2"
    for number, directory in enumerate((first, second)):
        directory.mkdir()
        (directory / "token").write_text(f"token-{number}\n")
        (directory / "ca.crt").write_text("")
    (tmp_path / "..data").symlink_to("..1")
    for name in ("token", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert is_in_cluster(IN_CLUSTER, tmp_path)
    assert not is_in_cluster({}, tmp_path)
    credentials = find_credentials(IN_CLUSTER, tmp_path)
    assert credentials.endpoint == Endpoint("10.0.0.1", 6443)
    assert credentials.token() == "token-0"
    (tmp_path / "new").symlink_to("..2")
    os.rename(tmp_path / "new", tmp_path / "..data")
    assert credentials.token() == "token-1"
    (second / "token").write_text("")
    with pytest.raises(AccessError, match="does not hold a token"):
        credentials.token()
    (second / "token").unlink()
    with pytest.raises(AccessError, match="cannot be read"):
        credentials.token()


def test_a_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"tls-server-name": "kubernetes", "server": "https://h/prefix/"})
    credentials = find_credentials({"KUBECONFIG": path})
    assert credentials.endpoint == Endpoint("h", 443, "/prefix", "kubernetes")
    assert credentials.token() == "secret"
    context = credentials.tls()
    assert context.check_hostname
    assert context is credentials.tls(), "made once"


def test_what_an_earlier_file_says_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("current-context: here\n")
    kubeconfig(second)
    assert read_kubeconfig([tmp_path / "missing", first, second]).cluster.server == "https://api.example:6443"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of a file")
    path = kubeconfig(tmp_path / "config", user={"tokenFile": "token"})
    assert find_credentials({"KUBECONFIG": path}).token() == "of a file"


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"insecure-skip-tls-verify": True}, {}, "insecure-skip-tls-verify, which is not accepted"),
        ({"server": "http://localhost:8080"}, {}, "'http://localhost:8080' is not accepted"),
        ({"server": "https://h:99999"}, {}, "is not accepted"),
        ({"proxy-url": "http://p"}, {}, "proxy-url, which is not supported"),
        ({}, {"username": "u"}, "accepted: token, tokenFile, client-certificate, exec"),
        ({"certificate-authority-data": "%"}, {}, "certificate-authority-data is not base64"),
        ({}, {"as": "somebody"}, "has `as`, which is not supported"),
        ({}, {"client-certificate": "c"}, "only one of client-certificate and client-key"),
    ],
)
def test_what_is_not_accepted_is_named(tmp_path: Path, cluster: Fields, user: Fields, words: str) -> None:
    with pytest.raises(AccessError, match=words):
        find_credentials({"KUBECONFIG": kubeconfig(tmp_path / "config", cluster, user)})


@pytest.mark.parametrize("nothing", ["user", "cluster"])
def test_what_is_null_is_nothing(tmp_path: Path, nothing: str) -> None:
    path = Path(kubeconfig(tmp_path / "config"))
    content = yaml.safe_load(path.read_text())
    content[f"{nothing}s"][0][nothing] = None
    path.write_text(yaml.safe_dump(content))
    if nothing == "user":
        assert find_credentials({"KUBECONFIG": str(path)}).token() == ""
    else:
        with pytest.raises(AccessError, match="the kubeconfig's server '' is not accepted"):
            find_credentials({"KUBECONFIG": str(path)})


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    path = kubeconfig(tmp_path / "config", user={"tokenFile": str(token)})
    credentials = find_credentials({"KUBECONFIG": path})
    assert credentials.token() == "first"
    token.unlink()
    os.mkfifo(token)
    with pytest.raises(AccessError, match="token cannot be used: it is a pipe"):
        credentials.token()
    token.unlink()
    token.write_text("second")
    assert credentials.token() == "second"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AccessError, match="it is a pipe"):
        find_credentials({"KUBECONFIG": str(tmp_path / "pipe")})


def test_all_of_a_large_bundle_of_authorities_counts(tmp_path: Path) -> None:
    others, ours = Authority(tmp_path, "others"), Authority(tmp_path, "ours")
    bundle = tmp_path / "bundle"
    filler = "# Ämter\n" + others.certificate.read_text()
    while not bundle.exists() or bundle.stat().st_size < TOKEN_BYTES_MAX:
        bundle.write_text(filler)
        filler += others.certificate.read_text()
    bundle.write_text(filler + ours.certificate.read_text())
    path = kubeconfig(tmp_path / "config", {"certificate-authority": str(bundle)})
    credentials = find_credentials({"KUBECONFIG": path})
    assert len(credentials.tls().get_ca_certs()) == 2
    bundle.write_text("x" * (CA_BYTES_MAX + 1))
    with pytest.raises(AccessError, match=f"bundle cannot be used: it is larger than {CA_BYTES_MAX} bytes"):
        credentials.tls()
    bundle.write_text("")
    with pytest.raises(AccessError, match="bundle is empty"):
        credentials.tls()


def test_a_certificate_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    """Wherever its key is."""
    authority = Authority(tmp_path)
    certificate, key = authority.sign("first")
    user: Fields = {
        "client-certificate": str(certificate),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    credentials = find_credentials({"KUBECONFIG": kubeconfig(tmp_path / "config", user=user)})
    context = credentials.tls()
    assert credentials.tls() is context
    os.replace(authority.sign("second")[0], certificate)
    with pytest.raises(AccessError, match="cannot be used"):  # the key is another's
        credentials.tls()


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    data = base64.b64encode(b"nothing").decode()
    path = kubeconfig(tmp_path / "config", {"certificate-authority-data": data})
    with pytest.raises(AccessError, match="a certificate for the API server cannot be used"):
        find_credentials({"KUBECONFIG": path}).tls()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1, 2]", "is not a kubeconfig"),
        ("a: [", "is not a kubeconfig"),
        ("contexts: []", "has no current-context"),
        ("current-context: x", "has no context called 'x'"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]", "has no cluster called 'c'"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(AccessError, match=words):
        find_credentials({"KUBECONFIG": str(tmp_path / "config")})


def test_neither_a_cluster_nor_a_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="KUBECONFIG is not set"):
        find_credentials({}, tmp_path)
    with pytest.raises(AccessError, match="there is no such file"):
        find_credentials({"KUBECONFIG": str(tmp_path / "none")}, tmp_path)


def program(path: Path, text: str) -> Exec:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Exec(command=str(path), env=[{"name": "WORD", "value": "said"}])


def test_a_programs_token_is_kept_until_it_is_about_to_expire(tmp_path: Path) -> None:
    status = '{"token": "\'$WORD-$(wc -l < count)\'", "expirationTimestamp": "2001-09-09T01:46:40Z"}'
    found = program(tmp_path / "p", f"cd {tmp_path}; echo >> count; echo '{{\"status\": {status}}}'")
    now = [1_000_000_000.0 - 1000]
    credentials = ExecCredentials(found, wall_clock=lambda: now[0])
    assert credentials.token() == "said-1"
    assert credentials.token() == "said-1"
    now[0] += 980
    assert credentials.token() == "said-2"
    now[0] -= 980
    credentials.renew()
    assert credentials.token() == "said-3", "the server has refused the former one"


def test_a_program_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    program(tmp_path / "here", 'echo \'{"status": {"token": "found"}}\'')
    path = kubeconfig(tmp_path / "config", user={"exec": {"command": "./here"}})
    assert find_credentials({"KUBECONFIG": path}).token() == "found"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo no such profile >&2; exit 3", "ended with code 3: no such profile"),
        ("echo nothing", "gave no token"),
        ("echo '{\"status\": {}}'", "gave no token"),
    ],
)
def test_a_program_that_gives_no_token(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(AccessError, match=words):
        ExecCredentials(program(tmp_path / "p", text)).token()
