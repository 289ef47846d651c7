#!/bin/sh
# Debian packages that tests use and pip cannot bring: a browser for the page. Quick when they are there.
set -eu
packages="chromium fonts-dejavu-core"
missing=""
for package in $packages; do
    dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
command="apt-get install --yes --no-install-recommends$missing"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update --quiet --quiet
    DEBIAN_FRONTEND=noninteractive $command >/dev/null
else
    echo "tests of the page need Debian packages; install them with: sudo $command" >&2
fi
