#!/bin/sh
# A RUSTC_WRAPPER for builds with the feature `aws`: the AWS SDK's crates are compiled with the compiler's hint that
# most of them is never used, which halves the time and the size. See docs/adr. Builds work without it, more slowly.
#
#   RUSTC_WRAPPER=$PWD/tools/rustc-mostly-unused.sh cargo build --release --features aws
#
# The hint is not stable yet, hence RUSTC_BOOTSTRAP, for these crates only.
rustc="$1"
shift
case " $* " in
*" --crate-name aws_sdk_"*)
    RUSTC_BOOTSTRAP=1 exec "$rustc" "$@" -Zhint-mostly-unused
    ;;
esac
exec "$rustc" "$@"
