"""Whether a host's hooks work, tried as the host would run them: `recallctl doctor`.

Pure: `samples` (payloads as the hosts send them), `contract` (what a host takes as an answer), `finding` (what is
told). What touches the machine: `delivery` (one hook, run), `proof` (a memory planted, and whether it arrives), `codex`
(what Codex says of our hooks), `machine` (directories, modes, login sessions).
"""
