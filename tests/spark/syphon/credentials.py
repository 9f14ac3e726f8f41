"""Factories of credentials, for Spark's workers to import: tokens that live for seconds; a key."""

import os
from pathlib import Path

from azure.core.credentials import AzureNamedKeyCredential

from pairbus.broker.auth.credentials import RECEIVER, SENDER, BrokerCredential

TEXT = "Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey="
LIFETIME = 5  # seconds
FOLDER = "PAIRBUS_TEST_CREDENTIALS"  # a variable that the workers get from Java's start


class ShortLived(BrokerCredential):
    """Notes by process that it was asked for a token."""

    def get_token(self, *scopes, **options):
        with (Path(os.environ[FOLDER]) / "tokens").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return super().get_token(*scopes, **options)


def _key(side):
    return (Path(os.environ[FOLDER]) / side).read_text()


def primary():
    return AzureNamedKeyCredential("RootManageSharedAccessKey", _key("primary"))


def secondary():
    return ShortLived(TEXT + _key("secondary"), lifetime=LIFETIME)


def sends():
    return BrokerCredential(f"{TEXT}SAS_KEY_VALUE", SENDER)


def listens():
    return BrokerCredential(f"{TEXT}SAS_KEY_VALUE", RECEIVER)
