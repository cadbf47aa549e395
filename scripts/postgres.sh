#!/bin/sh
# Makes sure that PostgreSQL's programs are there, for the tests against a real Debezium: installs them when root on a
# Debian-like system (without a cluster that would run), says what to do otherwise.
set -eu

there() {
    command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

there && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing PostgreSQL"
    mkdir -p /etc/postgresql-common
    test -e /etc/postgresql-common/createcluster.conf ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql postgresql-contrib >/dev/null
    there && exit 0
fi
echo "PostgreSQL is needed for the tests: install it (Debian: apt-get install postgresql postgresql-contrib)" >&2
exit 1
