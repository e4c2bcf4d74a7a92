//go:build !(amd64 || arm64 || loong64 || mips64 || mips64le || ppc64 || ppc64le || riscv64 || s390x)

package disk

// initialMmapSize is small where address space is.
const initialMmapSize = 64 << 20
