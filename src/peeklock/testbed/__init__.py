"""What a broker under test has beside others: a clock that is moved, faults on demand, namespaces
that come and go. Nothing of it is loaded by a broker that was not asked for it."""
