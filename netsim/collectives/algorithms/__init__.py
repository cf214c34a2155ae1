"""One algorithm per file, found by name: `build(call) -> Plan`."""
