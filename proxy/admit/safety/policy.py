"""The safety policy: for each class of personal data whether it may be stored, and what happens to doubtful
candidates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

ALLOW, REDACT, REJECT = "allow", "redact", "reject"

# Class -> how its marker reads.
PII: Mapping[str, str] = MappingProxyType(
    {
        "email": "e-mail",
        "phone": "phone number",
        "address": "address",
        "ip_address": "ip address",
        "card": "card number",
        "bank_account": "bank account",
        "national_id": "national id",
        "passport": "passport number",
    }
)
DEFAULT_PII: Mapping[str, str] = MappingProxyType(
    {name: ALLOW if name in ("email", "phone", "address", "ip_address") else REJECT for name in PII}
)


@dataclass(frozen=True, slots=True)
class SafetyPolicy:
    """allow: stored as said. redact: the span is replaced by its marker, the rest is kept.
    reject: as redact on disk, and no memory is made of a statement that holds it."""

    pii: Mapping[str, str] = field(default_factory=lambda: DEFAULT_PII)
    quarantine: bool = True  # doubtful candidates are held for review; False: dropped

    def __hash__(self) -> int:
        return hash((frozenset(self.pii.items()), self.quarantine))

    def of(self, kind: str) -> str:
        """Return the policy of a kind of span. A secret's is always to reject."""
        return self.pii.get(kind, REJECT)

    def marker(self, kind: str) -> str:
        """Return what stands in the place of a removed span."""
        return f"[redacted {PII[kind]}]" if self.of(kind) == REDACT else "[redacted]"

    def classes(self) -> frozenset[str]:
        """Return the classes of personal data that are looked for."""
        return frozenset(name for name in PII if self.of(name) != ALLOW)


DEFAULT = SafetyPolicy()
