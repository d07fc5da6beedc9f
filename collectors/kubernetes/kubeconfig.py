"""kubeconfig files: which server, known by which CA, asked as whom.

The rules are kubectl's: the files of `$KUBECONFIG` are merged, the first that names a cluster, user or
context wins, paths are relative to the file that holds them, and a pod's own service account counts where
there is no file at all. Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from collectors.home import at_home
from collectors.json_fields import verbatim
from collectors.kubernetes.context import Context, ExecPlugin, KubernetesError
from enginetop.fleet.foreign_json import Fields, field_at, objects_at, texts
from enginetop.fleet.model import LOCAL_HOST, in_brackets, same_host

_MOST_BYTES = 4 * 1024 * 1024
_File = tuple[Path, Fields]
"""What a file holds, or a part of it, and where that is."""

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def split_place(place: str, *, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """Context and namespace of `[CONTEXT][/NAMESPACE]`; a context may be the URL of a `kubectl proxy`.

    Names of contexts may have slashes in them, as those of EKS and OpenShift do: what a kubeconfig names is
    taken whole. One that cannot be read names none here, and is told where it is used.
    """
    scheme, slashes, rest = place.partition("://")
    if not slashes:
        scheme, rest = "", place
        before, _, last = place.rpartition("/")
        names = _known_names(environment) if before else ()
        if place in names:
            return place, None
        if before in names:
            return before, last or None
    context, _, namespace = rest.partition("/")
    return (f"{scheme}{slashes}{context}" if context else None), namespace or None


def find_context(
    name: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = _SERVICE_ACCOUNT,
) -> Context:
    """The context of that name, None: the current one. KubernetesError says what is missing and where.

    A name that is a URL is a `kubectl proxy` of this machine, which knows who we are.
    """
    if name is not None and "://" in name:
        return _proxied(name)
    paths, files = _paths(environment), _files(environment)
    if not files:
        if name is None and (own := _in_cluster(environment, service_account)) is not None:
            return own
        raise KubernetesError(
            f"no kubeconfig: {', '.join(map(str, paths))} not there; set KUBECONFIG, or log in to the cluster"
        )
    wanted = name or next(
        (current for _, file in files if (current := verbatim(file, "current-context"))), None
    )
    if wanted is None:
        raise KubernetesError(
            f"{files[0][0]}: no current context; name one of {_listed(files)} with --context"
        )
    entry = _named(files, "contexts", "context", wanted)
    if entry is None:
        raise KubernetesError(f"{files[0][0]}: no context {wanted!r}; there are {_listed(files)}")
    _, context = entry
    cluster = _named(files, "clusters", "cluster", verbatim(context, "cluster") or "")
    if cluster is None or verbatim(cluster[1], "server") is None:
        raise KubernetesError(f"{files[0][0]}: the context {wanted!r} names a cluster that is not there")
    user = _named(files, "users", "user", verbatim(context, "user") or "")
    return _resolved(wanted, context, cluster, user)


def _resolved(
    name: str,
    context: Fields,
    cluster: _File,
    user: _File | None,
) -> Context:
    at, fields = cluster
    server = (verbatim(fields, "server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise KubernetesError(f"{at}: the server of context {name!r} is no URL")
    mine, own = user if user is not None else (at, {})
    if "auth-provider" in own:
        raise KubernetesError(
            f"{mine}: the user of context {name!r} has an auth-provider, which kubectl "
            "gave up too; use an exec plugin"
        )
    return Context(
        name=name,
        server=server,
        namespace=verbatim(context, "namespace") or "default",
        ca_file=_path(at, fields, "certificate-authority"),
        ca_data=_data(at, fields, "certificate-authority-data"),
        insecure=fields.get("insecure-skip-tls-verify") is True,
        tls_server_name=verbatim(fields, "tls-server-name"),
        proxy_url=verbatim(fields, "proxy-url"),
        token=verbatim(own, "token"),
        token_file=_path(mine, own, "tokenFile"),
        username=verbatim(own, "username"),
        password=verbatim(own, "password"),
        cert_file=_path(mine, own, "client-certificate"),
        cert_data=_data(mine, own, "client-certificate-data"),
        key_file=_path(mine, own, "client-key"),
        key_data=_data(mine, own, "client-key-data"),
        exec_plugin=_exec(mine, own, name),
    )


def _proxied(url: str) -> Context:
    """A `kubectl proxy`: nothing is sent along, and the way there is not secret, so that it is loopback."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme != "http" or parts.username is not None or not same_host(host, LOCAL_HOST):
        raise KubernetesError(
            f"{host or 'that'} is no `kubectl proxy` of this machine; write http://127.0.0.1:8001, "
            "or the name of a context"
        )
    server = f"http://{in_brackets(host)}{f':{port}' if port else ''}"
    return Context(name=server, server=server, namespace="default")


def _exec(path: Path, user: Fields, context: str) -> ExecPlugin | None:
    fields = user.get("exec")
    if fields is None:
        return None
    command = verbatim(fields, "command")
    if command is None:
        raise KubernetesError(f"{path}: the exec plugin of context {context!r} names no command")
    if "/" in command and not Path(command).is_absolute():
        command = str(path.parent / command)
    return ExecPlugin(
        command=command,
        arguments=texts(field_at(fields, "args")),
        environment=tuple(
            (key, value)
            for one in objects_at(fields, "env")
            if (key := verbatim(one, "name")) is not None and (value := verbatim(one, "value")) is not None
        ),
        api_version=verbatim(fields, "apiVersion") or "client.authentication.k8s.io/v1",
        interactive=verbatim(fields, "interactiveMode") or "IfAvailable",
        install_hint=verbatim(fields, "installHint") or "",
        wants_cluster=fields.get("provideClusterInfo") is True,
    )


def _in_cluster(environment: Mapping[str, str], folder: Path) -> Context | None:
    """The service account of the pod that we run in."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        return None
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    return Context(
        name="in-cluster",
        server=f"https://{in_brackets(host)}:{port}",
        namespace=namespace or "default",
        ca_file=str(folder / "ca.crt"),
        token_file=str(folder / "token"),
        in_cluster=True,
    )


def _paths(environment: Mapping[str, str]) -> Sequence[Path]:
    named = [at_home(one) for one in environment.get("KUBECONFIG", "").split(os.pathsep) if one]
    return named or [at_home(environment.get("HOME") or "~") / ".kube" / "config"]


def _files(environment: Mapping[str, str]) -> Sequence[_File]:
    """The files that are there. KubernetesError: one cannot be read, or is none."""
    return [(path, read) for path in _paths(environment) if (read := _read(path)) is not None]


def _read(path: Path) -> Fields | None:
    """A file's mapping, None when there is no such file."""
    try:
        with path.open("rb") as file:
            found = yaml.safe_load(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KubernetesError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise KubernetesError(f"{path}: no YAML; it should be a kubeconfig") from None
    if not isinstance(found, dict):
        raise KubernetesError(f"{path}: no kubeconfig")
    return found


def _named(files: Sequence[_File], kind: str, key: str, name: str) -> _File | None:
    """The first entry of that name, with the file it stands in."""
    for path, file in files:
        for entry in objects_at(file, kind):
            if verbatim(entry, "name") == name:
                fields = field_at(entry, key)
                return path, fields if isinstance(fields, dict) else {}
    return None


def _names(files: Sequence[_File]) -> Collection[str]:
    """The names of contexts, each once."""
    entries = [entry for _, file in files for entry in objects_at(file, "contexts")]
    return dict.fromkeys(name for entry in entries if (name := verbatim(entry, "name")))


def _listed(files: Sequence[_File]) -> str:
    return ", ".join(_names(files)) or "none"


def _known_names(environment: Mapping[str, str]) -> Collection[str]:
    try:
        return _names(_files(environment))
    except KubernetesError:
        return ()


def _path(file: Path, fields: Fields, key: str) -> str | None:
    value = verbatim(fields, key)
    return None if value is None else str(file.parent / at_home(value))


def _data(file: Path, fields: Fields, key: str) -> bytes | None:
    value = verbatim(fields, key)
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise KubernetesError(f"{file}: {key} is no base64") from None
