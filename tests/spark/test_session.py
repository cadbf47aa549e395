"""What the session is made with."""

import json
import os
import subprocess
import sys

CODE = """
import json, os, subprocess
from zync.spark.session import session

word = os.environ["WORD"]
keys = (
    "fs.s3a.secret.key",
    "fs.s3a.encryption.key",
    "fs.azure.account.key.me.dfs.core.windows.net",
    "google.cloud.auth.service.account.private.key",
)
secrets = {f"spark.hadoop.{key}": word for key in keys}
spark = session(properties={**secrets, "spark.hadoop.fs.s3a.endpoint": f"not {word[1:]}"})
seen = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
known = {spark.sparkContext._jsc.hadoopConfiguration().get(key) for key in keys}
print(json.dumps([word in seen, f"not {word[1:]}" in seen, known == {word}]))
"""


def test_secrets_are_in_no_command_line() -> None:
    """Which others on the host see; other properties are in the JVM's, as spark-submit has it."""
    environment = {**os.environ, "WORD": "zhush-hush"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [False, True, True]
