"""What Spark on Kubernetes runs in its pods: an executor, or by `spark-submit --deploy-mode cluster` a driver.

Spark gives a container the argument `executor`, or `driver` and the words of spark-submit, and says all else by
variables of the environment. Spark's own image has a shell script for them. This does the same with the Spark that the
pyspark package contains.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def executor(variables: Mapping[str, str], home: Path) -> list[str]:
    """Returns the command line of an executor.

    Args:
        variables: The environment, as Spark's BasicExecutorFeatureStep makes it.
        home: Spark's folder.
    """
    options = sorted(name for name in variables if name.startswith("SPARK_JAVA_OPT_"))
    options.sort(key=lambda name: int(name.rpartition("_")[2]))
    parts = [variables.get(name, "") for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_CLASSPATH")]
    parts += [
        f"{home}/jars/*",
        *(variables.get(name, "") for name in ("SPARK_EXTRA_CLASSPATH", "SPARK_DIST_CLASSPATH")),
    ]
    java_home = variables.get("JAVA_HOME")
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    return [
        f"{java_home}/bin/java" if java_home else "java",
        *(variables[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(filter(None, parts)),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", variables["SPARK_DRIVER_URL"]),
        *("--executor-id", variables["SPARK_EXECUTOR_ID"]),
        *("--cores", variables["SPARK_EXECUTOR_CORES"]),
        *("--app-id", variables["SPARK_APPLICATION_ID"]),
        *("--hostname", variables["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", variables["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", variables["SPARK_EXECUTOR_POD_NAME"]),
    ]


def driver(variables: Mapping[str, str], home: Path, words: Sequence[str]) -> list[str]:
    """Returns the command line of a driver, with the words that Spark gives it."""
    address = f"spark.driver.bindAddress={variables['SPARK_DRIVER_BIND_ADDRESS']}"
    return [str(home / "bin" / "spark-submit"), "--conf", address, "--deploy-mode", "client", *words]


def main(words: Sequence[str]) -> None:
    """Becomes the process that the first word names, in a folder that it may write to: Spark puts files there."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(os.environ.get("SPARK_HOME") or Path(str(spec and spec.origin)).parent)
    os.environ["SPARK_HOME"] = str(home)
    os.chdir(os.environ.get("SPARK_LOCAL_DIRS", "/tmp").partition(",")[0])  # noqa: S108 - a container's
    command = executor(os.environ, home) if words[0] == "executor" else driver(os.environ, home, words[1:])
    os.execvp(command[0], command)  # noqa: S606 - Spark


if __name__ == "__main__":
    main(sys.argv[1:])
