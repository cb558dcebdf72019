"""Shapes of vendors' keys that the library detect-secrets keeps up to date, as our detectors.

Only its plugins whose shape alone is proof are used: its keyword and entropy plugins are made for source
code and flag ordinary prose, its basic-auth pattern is quadratic on hostile text. What it can do beyond
patterns (asking the vendor whether a key works) is never called.
"""

import re

from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from proxy.background.detect import Detector
from proxy.background.looks import is_vendor_key

# Plugin, and what (lower case) stands in every text that it could find something in.
_PLUGINS = (
    (AWSKeyDetector, ("a3t", "abia", "acca", "akia", "asia", "aws")),
    (AzureStorageKeyDetector, ("accountkey=",)),
    (DiscordBotTokenDetector, (".",)),
    (GitHubTokenDetector, ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (GitLabTokenDetector, ("gl", "gr1348941")),
    (MailchimpDetector, ("-us",)),
    (OpenAIDetector, ("t3blbkfj",)),
    (SendGridDetector, ("sg.",)),
    (SlackDetector, ("xox", "hooks.slack.com")),
    (SquareOAuthDetector, ("sq0csp-",)),
    (StripeDetector, ("k_live_",)),
    (TelegramBotTokenDetector, (":aa",)),
    (TwilioKeyDetector, ("ac", "sk")),
)


def _rows() -> tuple[Detector, ...]:
    return tuple(
        Detector("secret", re.compile(pattern), is_vendor_key, hints, pieces=True, whole=True)
        for plugin, hints in _PLUGINS
        for pattern in plugin.denylist
    )


ROWS = _rows()
