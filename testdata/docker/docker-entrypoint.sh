#!/bin/sh
# What matters of nginx's own: it does something first, and then becomes the command.
set -e
echo "entrypoint: $*"
exec "$@"
