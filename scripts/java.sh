#!/bin/sh
# Makes sure that there is a Java of 17 or newer: installs one when root on a Debian-like system, says what to do otherwise.
set -eu

enough() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null 2>&1 || return 1
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

enough && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Java 17"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null
    enough && exit 0
fi
echo "Java 17 or newer is needed: install it (Debian: apt-get install openjdk-17-jre-headless) and run this again" >&2
exit 1
