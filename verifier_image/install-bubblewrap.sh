#!/bin/sh
# Installs bubblewrap through the system's package manager where that is allowed without asking for a password.
# Where it is not, nothing happens: the project's own launcher serves, and `populora doctor` says what works.
command -v bwrap >/dev/null 2>&1 && exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || exit 0
  as_root="sudo -n"
fi

echo "installing bubblewrap (the sandbox for model-written programs) ..."
if command -v apt-get >/dev/null 2>&1; then
  { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap; } >/dev/null 2>&1
elif command -v dnf >/dev/null 2>&1; then
  $as_root dnf install -y -q bubblewrap >/dev/null 2>&1
elif command -v pacman >/dev/null 2>&1; then
  $as_root pacman -S --noconfirm --quiet bubblewrap >/dev/null 2>&1
elif command -v apk >/dev/null 2>&1; then
  $as_root apk add --quiet bubblewrap >/dev/null 2>&1
fi
exit 0
