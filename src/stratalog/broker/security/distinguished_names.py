"""Distinguished names in Java's form, and their mapping by `ssl.principal.mapping.rules`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.config import invalid
from stratalog.errors import StratalogError

if TYPE_CHECKING:
    from cryptography import x509

RULES_KEY: Final = "ssl.principal.mapping.rules"

_KEYWORDS: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_ESCAPED: Final = re.compile(r'([,+"\\<>;])')
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)")
_GROUP: Final = re.compile(r"\$(\d)")


class UnmappedNameError(StratalogError):
    """No rule of `ssl.principal.mapping.rules` matches the name of a certificate."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """Replaces names that match `pattern` as a whole by `replacement`; `case` L or U changes the letters."""

    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self.replacement, name)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)


_DEFAULT: Final = MappingRule(re.compile(r".*", re.DOTALL), r"\g<0>", "")


def parse_rules(value: str) -> tuple[MappingRule, ...]:
    """Parse `RULE:pattern/replacement/[LU],...,DEFAULT`. InvalidConfigError for an invalid rule."""
    rules, position = [], 0
    text = value.strip()
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise invalid(RULES_KEY, value, f"Invalid rule: `{text[position:]}`")
        position = found.end()
        if found[1]:
            rules.append(_DEFAULT)
            continue
        try:
            pattern = re.compile(found[2], re.ASCII)  # as in Java: \w is no letter of other scripts
        except re.error as error:
            raise invalid(RULES_KEY, value, f"`{found[2]}` is no pattern: {error}") from None
        rules.append(MappingRule(pattern, _replacement(found[3], pattern.groups), found[4]))
    return tuple(rules) or (_DEFAULT,)


def _replacement(text: str, groups: int) -> str:
    """Convert a replacement from Java's syntax (`$1` for a group) to Python's; an unknown group is literal text."""

    def group(found: re.Match[str]) -> str:
        return rf"\g<{found[1]}>" if int(found[1]) <= groups else found[0]

    return _GROUP.sub(group, text.replace("\\/", "/").replace("\\", "\\\\"))


def map_name(name: str, rules: tuple[MappingRule, ...]) -> str:
    """Return the name mapped by the first matching rule. UnmappedNameError when none matches."""
    if rules == (_DEFAULT,):
        return name
    for rule in rules:
        found = name if rule is _DEFAULT else rule.apply(name)
        if found is not None:
            return found
    raise UnmappedNameError(f"no rule of {RULES_KEY} is for {name}")


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate (DER) in RFC 2253, as Java's `X500Principal.getName` returns it."""
    from cryptography import x509  # an optional dependency

    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(map(_attribute, part)) for part in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{oid}=#{_encoded_value(attribute).hex()}"
    text = _ESCAPED.sub(r"\\\1", attribute.value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return f"{keyword}={text}"


def _encoded_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER of an attribute's value: what follows the identifier in `SEQUENCE { SET { SEQUENCE { .. } } }`."""
    from cryptography import x509  # an optional dependency

    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        data = _content(data)
    return data[len(data) - len(_behind(data)) :]


def _content(data: bytes) -> bytes:
    """Return the content of the first DER element."""
    start, size = _extent(data)
    return data[start : start + size]


def _behind(data: bytes) -> bytes:
    """Return the data after the first DER element."""
    start, size = _extent(data)
    return data[start + size :]


def _extent(data: bytes) -> tuple[int, int]:
    if data[1] < 0x80:
        return 2, data[1]
    count = data[1] & 0x7F
    return 2 + count, int.from_bytes(data[2 : 2 + count])
