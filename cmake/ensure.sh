#!/bin/sh
# ensure.sh build|python|test - what a build or the tests need and this machine lacks: installed if we may
# (Debian, root), else named in one line. Says nothing if nothing is missing.
set -eu

packages=
need() { # need PACKAGE TEST...: PACKAGE is missing if TEST fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || packages="$packages $package"
}
have() { command -v "$1"; }
compiles() { # compiles COMPILER FLAGS...: whether it makes a program
    echo 'int main(void) { return 0; }' | "$@" -x c - -o /dev/null
}
python_has() { python3 -c "$1"; }
headers='import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))'
fuzzes() { echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer,address -x c - -o /dev/null; }
lists() { # what is missing now, into $packages
    packages=
    need gcc compiles cc
    need libc6-dev compiles cc
    need cmake have cmake
    need ninja-build have ninja
    [ "$1" != build ] || return 0
    need python3 have python3
    need python3-dev python_has "$headers"
    [ "$1" = test ] || return 0
    need python3-venv python_has 'import ensurepip, venv'
    need ccache have ccache
    need g++ have c++
    need clang compiles clang
    need libclang-rt-14-dev fuzzes
    need binutils have objdump
    need pkg-config have pkg-config
    need gcc-aarch64-linux-gnu have aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross compiles aarch64-linux-gnu-gcc -static
    need qemu-user have qemu-aarch64
}

lists "$1"
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing:$packages"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { apt-get -q update && apt-get -q install -y --no-install-recommends $packages; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        echo "could not install:$packages" >&2
        exit 1
    fi
    rm -f "$log"
    lists "$1"
fi
# these only make it faster
packages=$(echo "$packages" | sed 's/ ninja-build//; s/ ccache//')
[ -z "$packages" ] || { echo "please install:$packages" >&2; exit 1; }
