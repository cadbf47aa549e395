"""zync lands the transactions of Kafka topics in a lake whole, exactly once."""

from importlib.metadata import version

__version__ = version("zync")
