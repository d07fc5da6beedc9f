"""How a cluster is reached and as whom, and the error of all that goes wrong with it."""

from __future__ import annotations

import shlex

from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.fleet.errors import ClusterError
from enginetop.fleet.frozen import frozen

_LONGEST_TEXT = 400
"""Characters: a server names user, verb, kind and namespace, or all fields of a conflict."""


class KubernetesError(ClusterError):
    """Something of Kubernetes that does not work; foreign words are cleaned and held to one line."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(" ".join(clean_text(without_secrets(text), _LONGEST_TEXT).split()), status)


@frozen
class ExecPlugin:
    """A program that prints credentials (`client.authentication.k8s.io`)."""

    command: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    api_version: str
    interactive: str
    """`Never`, `IfAvailable` or `Always`."""
    install_hint: str
    wants_cluster: bool

    @property
    def shown(self) -> str:
        """The command as a person runs it."""
        return shlex.join((self.command, *self.arguments))


@frozen(repr=False)
class Context:
    """One context, resolved. Secrets in it (`token`, `password`, keys) are shown by no repr."""

    name: str
    server: str
    namespace: str
    ca_file: str | None = None
    ca_data: bytes | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    token: str | None = None
    token_file: str | None = None
    username: str | None = None
    password: str | None = None
    cert_file: str | None = None
    cert_data: bytes | None = None
    key_file: str | None = None
    key_data: bytes | None = None
    exec_plugin: ExecPlugin | None = None
    in_cluster: bool = False

    def __repr__(self) -> str:
        return f"Context({self.name!r}, {self.server!r})"
