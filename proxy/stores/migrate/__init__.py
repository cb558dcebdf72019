"""Moving everything that a data directory holds into the stores of a fleet."""

from proxy.stores.migrate.moving import Move as Move
from proxy.stores.migrate.moving import Moved as Moved
from proxy.stores.migrate.source import Refused as Refused
from proxy.stores.migrate.source import opened as opened
