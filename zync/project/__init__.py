"""A project on disk: `zync.yaml` and its rules, read into `zync.config`, or written by `zync init`."""
