#!/usr/bin/env bash
# Makes sure that the tests of the alert rules have promtool: takes it out of Debian's package, which is not installed
# (that would start a Prometheus on this machine), else prints which tests are left out.
set -u
folder="$(dirname "$0")/../.venv/promtool"
command -v promtool >/dev/null 2>&1 && exit 0
[ -x "$folder/usr/bin/promtool" ] && exit 0
if command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; then
  echo "fetching promtool for the tests of the alert rules ..."
  mkdir -p "$folder"
  fetch() { (cd "$folder" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm -f prometheus_*.deb usr/bin/prometheus) >/dev/null 2>&1; }
  if fetch || { [ "$(id -u)" = 0 ] && apt-get update -qq >/dev/null 2>&1 && fetch; }; then
    exit 0
  fi
fi
echo "*** LEFT OUT: the tests of the alert rules. No promtool is here and it could not be fetched; put 'promtool' on PATH to run them. ***" >&2
exit 0
