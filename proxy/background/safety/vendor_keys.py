"""Shapes of vendors' keys that the library detect-secrets keeps up to date, as our detectors.

Only its plugins whose shape alone is proof are used: its keyword and entropy plugins are made for source
code and flag ordinary prose, its basic-auth pattern is quadratic on hostile text. What it can do beyond
patterns (asking the vendor whether a key works) is never called.

The library is imported with the first text that is looked at: it imports an HTTP client for what we never
call, some 0.15 s that a start need not wait for.
"""

import re
from functools import cache
from importlib import import_module

from proxy.background.safety.detect import Detector
from proxy.background.safety.looks import is_vendor_key

# Plugin (module and class), and what (lower case) stands in every text that it could find something in.
_PLUGINS = (
    ("aws", "AWSKeyDetector", ("a3t", "abia", "acca", "akia", "asia", "aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",)),
    ("discord", "DiscordBotTokenDetector", (".",)),
    ("github_token", "GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("gitlab_token", "GitLabTokenDetector", ("gl", "gr1348941")),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("openai", "OpenAIDetector", ("t3blbkfj",)),
    ("sendgrid", "SendGridDetector", ("sg.",)),
    ("slack", "SlackDetector", ("xox", "hooks.slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("stripe", "StripeDetector", ("k_live_",)),
    ("telegram_token", "TelegramBotTokenDetector", (":aa",)),
    ("twilio", "TwilioKeyDetector", ("ac", "sk")),
)


@cache
def rows() -> tuple[Detector, ...]:
    """Return the detectors. The first call imports the library; it may be made in any thread."""
    return tuple(
        Detector("secret", re.compile(pattern), is_vendor_key, hints, pieces=True, whole=True)
        for module, plugin, hints in _PLUGINS
        for pattern in getattr(import_module(f"detect_secrets.plugins.{module}"), plugin).denylist
    )
