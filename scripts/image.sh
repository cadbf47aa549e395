#!/bin/sh
# Makes sure that the programs are there that tests/deploy/test_image.py builds and runs the image with: installs them
# when root on a Debian-like system, says what to do otherwise.
set -eu

there() {
    for program in buildah debootstrap runc; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

there && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing buildah, debootstrap and runc"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah debootstrap runc >/dev/null
    there && exit 0
fi
echo "buildah, debootstrap and runc are needed: install them (Debian: apt-get install buildah debootstrap runc)" >&2
exit 1
