"""Moving everything that a data directory holds into the stores of a fleet."""

from proxy.storage.migrate.moving import Move as Move
from proxy.storage.migrate.moving import Moved as Moved
from proxy.storage.migrate.source import Refused as Refused
from proxy.storage.migrate.source import opened as opened
