#!/usr/bin/env bash
# Makes sure that the browser tests have a Chromium: installs Debian's if possible, else prints which tests are left out.
set -u
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing Chromium for the tests of the live page ..."
  if { apt-get install -qq -y --no-install-recommends chromium || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }; } >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "*** LEFT OUT: the browser tests. No Chromium is here and it could not be installed; put 'chromium' on PATH to run them. ***" >&2
exit 0
