"""Tools for testing Service Bus code: fixtures, a fault proxy, a fake clock."""
