"""The config as typed, frozen values. `zync.project` reads the file into them."""
