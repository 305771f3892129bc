"""Our entries in a host's settings: put in, taken out again, the user's own bytes left as they are.

What is pure: `jsonc` (text to nodes), `edits` (where text goes in and out), `entries` (what a host's settings must
say), `marks` (which of it is ours), `settings` (all of these on one text). What touches the disk: `files` (whole files,
at one moment), `notebook` (how to undo), `places` (where a host looks), `install` (one host, start to end).
"""
