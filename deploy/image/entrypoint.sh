#!/bin/sh
# The image's first process: zync, or what Spark on Kubernetes calls by these two words.
case "$1" in
driver | executor) exec python3 /opt/zync/share/zync/spark.py "$@" ;;
*) exec zync "$@" ;;
esac
