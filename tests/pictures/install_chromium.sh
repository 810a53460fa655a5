#!/bin/sh
# Install the browser that test_browser.py needs, if this machine is one that can.
# Where it cannot be installed the tests are skipped, and say so.
set -eu
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then
    echo "The browser is here: $name."
    exit 0
  fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "No browser, and only root with apt-get could install one: its tests are skipped."
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; then
  echo "The browser was installed: chromium."
else
  echo "The browser could not be installed: its tests are skipped."
fi
