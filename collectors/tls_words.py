"""A fault of TLS in words: OpenSSL's own, and what helps against it."""

from __future__ import annotations

import re
import ssl

_HELPS = (
    (
        "mismatch, certificate is not valid for",
        "write the target's address with a name that is in its certificate",
    ),
    ("self-signed", "name its CA with ca_file"),
    ("self signed", "name its CA with ca_file"),
    ("issuer certificate", "name its CA with ca_file"),
    ("signature failure", "ca_file holds another CA of the same name: name the one that signed it"),
    ("certificate has expired", "it has to be renewed there, unless this machine's clock is wrong"),
    ("not yet valid", "a clock is wrong, here or where it was made"),
    ("refused there: certificate required", "name our client certificate with client_cert_file"),
    ("refused there: certificate expired", "our client certificate (client_cert_file) has to be renewed"),
    ("refused there: unknown ca", "it does not know the CA of our client certificate (client_cert_file)"),
    ("refused there: handshake failure", "it may want a client certificate (client_cert_file)"),
    ("refused there: protocol version", "it speaks other versions of TLS than this machine allows"),
    ("refused there: unrecognized name", "write the target's address with a name that it knows"),
    ("refused there", "see its log; it may want another client certificate (client_cert_file)"),
    ("unsupported protocol", "it speaks only versions of TLS that this machine does not allow"),
    ("wrong version number", "it speaks plain HTTP there: write http://"),
    ("record layer failure", "it speaks plain HTTP there: write http://"),
    ("eof", "it hung up; it may want a client certificate (client_cert_file)"),
)
"""What helps, by words of OpenSSL. The first entry whose words are said counts: a mismatch stands first,
since it repeats a name, which may hold any of the others.
"""

_ALERT = re.compile(r"^(?:ssl|tls)v\d+ (?:alert |(?=unrecognized name))")
"""How what the other end says begins; OpenSSL leaves the word out of the alert about a name."""


def tls_words(error: ssl.SSLError) -> str:
    """What is wrong, and after a semicolon what helps, where that is known."""
    reason = getattr(error, "verify_message", "") or error.reason or "handshake failed"
    said = _ALERT.sub("refused there: ", reason.replace("_", " ").lower().rstrip("."))
    helps = next((f"; {help_}" for words, help_ in _HELPS if words in said), "")
    return f"TLS: {said}{helps}"
