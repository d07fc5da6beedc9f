#!/usr/bin/env bash
# Builds a real kube-apiserver (1.20.2) from Debian's source package into FOLDER. Needs root and apt of Debian 12; 5 to
# 8 minutes of CPU, 3 GB of disk. Usage: build_apiserver.sh FOLDER
set -euo pipefail
folder=$(realpath -m "$1")
mkdir -p "$folder"
cd "$folder"

export DEBIAN_FRONTEND=noninteractive
sources=/etc/apt/sources.list.d/enginetop-kubernetes-source.list
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" >"$sources"
trap 'rm -f "$sources"' EXIT
apt-get update -qq
apt-get install -qq -y --no-install-recommends golang-go etcd-server dpkg-dev golang-github-modern-go-reflect2-dev >/dev/null
[[ -d source ]] || { apt-get source -qq --download-only kubernetes && dpkg-source -x --no-check ./*.dsc source >/dev/null; }

# The tree is built as a GOPATH workspace, as its own Makefile did at the time.
gopath=$folder/gopath
mkdir -p "$gopath/src/k8s.io"
ln -sfn "$folder/source" "$gopath/src/k8s.io/kubernetes"
export GOPATH=$gopath GO111MODULE=off GOFLAGS=-p=2
cd "$gopath/src/k8s.io/kubernetes"

# The vendored reflect2 crashes under this Go as soon as a custom resource is written; Debian's own does not.
rm -rf vendor/github.com/modern-go/reflect2
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/

# A generated file that the source package leaves out.
openapi=pkg/generated/openapi/zz_generated.openapi.go
if [[ ! -s $openapi ]]; then
    go build -o "$folder/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    packages=$(grep -rlE '^// *\+k8s:openapi-gen=true' --include='*.go' pkg staging/src |
        grep -vE '/(testdata|code-generator|sample-[a-z-]+|generated)/' | xargs -n1 dirname | sort -u |
        sed -e 's|^staging/src/||' -e 's|^pkg/|k8s.io/kubernetes/pkg/|' | paste -sd,)
    "$folder/openapi-gen" --go-header-file /dev/null --output-file-base zz_generated.openapi \
        --output-package k8s.io/kubernetes/pkg/generated/openapi --output-base "$gopath/src" \
        --input-dirs "$packages" --report-filename /dev/null
fi
go build -o "$folder/kube-apiserver" ./cmd/kube-apiserver
echo "$folder/kube-apiserver"
