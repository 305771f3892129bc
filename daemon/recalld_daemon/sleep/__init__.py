"""The nightly cycle, a process of its own: collect, train, judge, promote, re-project, verify, activate."""
