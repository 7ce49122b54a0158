#!/bin/sh
# Installs the programs the tests run drainit with, where they are missing: as root on Debian. Elsewhere it says what is
# missing; the tests that need it are then skipped, and say so.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=
need() { # program package
	for program in $1; do
		command -v "$program" >/dev/null 2>&1 && return
	done
	missing="$missing $2"
}
need nginx nginx-light
need "$(ls /usr/sbin 2>/dev/null | grep '^php-fpm' || echo php-fpm)" php-fpm
need debootstrap debootstrap
need curl curl
need bash bash
need gcc gcc
need docker docker.io

[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing for some tests, which will be skipped: $missing (Debian packages; run this as root on Debian to install them)" >&2
	exit 0
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# Servers must not start by themselves: the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
	trap 'rm -f $policy' EXIT
fi
# shellcheck disable=SC2086
apt-get install -q -y --no-install-recommends $missing
