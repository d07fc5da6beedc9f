"""Where `watch` may listen: loopback, unless somebody says in so many words that others may ask too."""

from __future__ import annotations

import ipaddress

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import in_brackets

CONSENT_FLAG = "--listen-any-address"
CONSENT_KEY = "listen_any_address"


@frozen
class Listen:
    """An address to listen on. `port` 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{in_brackets(self.host)}:{self.port}"


def parse_listen(text: str, origin: str, *, any_address: bool) -> Listen:
    """`HOST:PORT`, where HOST is an address (`[::1]` in brackets) or `localhost`, or nothing: loopback.

    ConfigError, which begins with `origin`: it is none, or one that other machines can reach and
    `any_address` is not set.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if address is None or not digits or not colon or int(port) > 65535:
        raise ConfigError(f"{origin}: {text!r} is no address; write 127.0.0.1:PORT")
    if not address.is_loopback and not any_address:
        raise ConfigError(
            f"{origin}: other machines reach {text}, and whoever asks is answered without a key; add "
            f"{CONSENT_FLAG} (in a config file {CONSENT_KEY} = true under [watch]) if that is meant"
        )
    return Listen(str(address), int(port))
